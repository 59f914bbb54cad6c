"""What the wording alone gives away: classifiers that see a question's words and nothing of the model."""

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np
import xarray as xr
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from threadpoolctl import threadpool_limits

from headatlas.methods.probe.examples import Examples
from headatlas.tasks.questions import Question, in_words


def bag_of_words(texts: Sequence[str], labels: np.ndarray, train: np.ndarray, test: np.ndarray) -> float:
    """Test accuracy of a linear classifier on words and pairs of words."""
    words = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"(?u)\w+|[^\w\s]")
    classifier = make_pipeline(words, LogisticRegression(C=10, max_iter=1000))
    classifier.fit([texts[i] for i in train], labels[train])
    return float((classifier.predict([texts[i] for i in test]) == labels[test]).mean())


def sentence_about(main: str, step: str) -> str:
    """The sentence of a main question that has most words in common with a step: where a reader would look."""
    sentences = re.split(r"(?<=[.?!])\s+", main)
    words = set(re.findall(r"\w{3,}", step.lower()))
    return max(sentences, key=lambda s: len(words & set(re.findall(r"\w{3,}", s.lower()))))


def wording(questions: Sequence[Question], answers: Sequence[str], labels: np.ndarray, data: Examples) -> xr.Dataset:
    """What classifiers reach that see nothing but words: of each text that the model sees, and of what it says."""
    texts = {
        "question": [q.text for q in questions],
        "prompt": [in_words(q) for q in questions],
        "answer": list(answers),
        "question and answer": [f"{q.text} {a}" for q, a in zip(questions, answers, strict=True)],
        "sentence asked about": [f"{sentence_about(q.main, q.text)} {q.text}" for q in questions],
    }
    with threadpool_limits(1):  # for vectors this small, threads take five times as long on two cores, and more on many
        reached = [bag_of_words(text, labels, data.train, data.test) for text in texts.values()]
    return xr.Dataset(
        {"bag_of_words_accuracy": reached[0], "bag_of_words": ("wording", reached)}, coords={"wording": list(texts)}
    )


def majority(labels: np.ndarray, train: np.ndarray, test: np.ndarray) -> float:
    """Test accuracy of always naming the commonest class of the training examples."""
    commonest = Counter(labels[train].tolist()).most_common(1)[0][0]
    return float((labels[test] == commonest).mean())
