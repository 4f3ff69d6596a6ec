"""compare.py RENDERED.json: whether jinja2, set up as transformers sets it up, writes the same. The file has a list of {template (a file),
variables, and text or fault}. Prints each difference, and ends with 1 if there is one, with 77 without jinja2."""
import json
import pathlib
import sys

try:
    import make_goldens
except ImportError:
    sys.exit(77)


def text_of(case):
    try:
        template = make_goldens.environment().from_string(pathlib.Path(case["template"]).read_text())
        return template.render(**case["variables"])
    except Exception:
        return None


def main():
    cases = json.loads(pathlib.Path(sys.argv[1]).read_text())
    differ = 0
    for case in cases:
        expected = text_of(case)
        if expected != case.get("text"):
            differ += 1
            print(case["template"], json.dumps(case["variables"])[:300])
            print("  jinja2:", repr(expected)[:400])
            print("  engine:", repr(case.get("text", case.get("fault")))[:400])
    print(len(cases), "renderings,", differ, "differ")
    sys.exit(1 if differ else 0)


if __name__ == "__main__":
    main()
