"""Changes of every subject without the heads of each subject, as methods and tests measure them."""

import numpy as np

from headatlas.results.changes import change_matrix
from tests.figures import synthetic
from tests.figures.made_tests import with_tests


def test_a_probe_s_published_specialisation_has_removed_heads_in_rows() -> None:
    probe = synthetic.probe(6, 8)
    matrix = change_matrix(with_tests({"probe": probe})["probe"])  # rather than its tests
    assert (matrix.rows, matrix.columns) == (probe.masked.values.tolist(), probe.function.values.tolist())
    assert (matrix.measure, matrix.n_heads) == ("log P", 4)
    np.testing.assert_array_equal(matrix.values, probe.specialisation.values[..., 0].T)


def test_tests_give_the_subject_itself_and_the_others_that_were_measured() -> None:
    dissociate = with_tests({"dissociate": synthetic.dissociate(6, 8)})["dissociate"]
    names = dissociate.function.values.tolist()
    matrix = change_matrix(dissociate)
    assert matrix.rows == names[:3]  # the model cannot do the fourth
    assert matrix.columns == [*names, "plain text"]
    assert (matrix.measure, matrix.n_heads) == ("log P per token", 4)
    np.testing.assert_allclose(matrix.values[[0, 1, 2], [0, 1, 2]], [-1.2, -0.1, -0.2])
    np.testing.assert_allclose(matrix.values[0, 1:], -0.05)


def test_others_that_a_test_did_not_measure_are_missing() -> None:
    maps = with_tests({"maps": synthetic.maps(6, 8)})["maps"]  # each test has four others of seven
    matrix = change_matrix(maps)
    column = matrix.columns.index("relation_6")
    assert np.isfinite(matrix.values[:, column]).tolist() == [row == "relation_6" for row in matrix.rows]


def test_without_either_there_is_no_matrix() -> None:
    for made in (synthetic.gate, synthetic.maps, synthetic.ablate, synthetic.dissociate, synthetic.salient):
        assert change_matrix(made(3, 4)) is None
