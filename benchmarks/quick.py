"""Time the quick preset of a method with other settings; benchmarks/presets.py compares the maps.

python benchmarks/quick.py gate seeds=2 updates=24,30 --out try/gate-30     then: … presets.py FULL try/gate-30
"""

import ast
import time

from common import make_parser

import headatlas as ha

OPTIONS_WITHOUT_TEST = {"gate": {}, "probe": {"published_tests": False}, "dissociate": {}}


def main() -> None:
    parser = make_parser(__doc__, model="smollm2", device="auto", dtype="float32")
    parser.add_argument("method", choices=OPTIONS_WITHOUT_TEST)
    parser.add_argument("settings", nargs="*", help="name=value")
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    options = dict(OPTIONS_WITHOUT_TEST[args.method])
    for setting in args.settings:
        name, text = setting.split("=", 1)
        options[name] = ast.literal_eval(text)
    lm = ha.load(args.model, args.device, args.dtype)
    start = time.perf_counter()
    getattr(ha, args.method)(lm, out=args.out, **options)
    print(f"{args.method} {' '.join(args.settings)}: {time.perf_counter() - start:.1f} s")


if __name__ == "__main__":
    main()
