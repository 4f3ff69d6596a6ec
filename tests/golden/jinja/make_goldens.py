"""Writes expected.json: what jinja2 3.1.6, set up as transformers sets it up for chat templates, makes of expressions.txt (one a line) and
of the templates in templates.txt (separated by lines of ====). Run it with the Python of .deps/venv, where torch has brought jinja2."""
import copy
import json
import pathlib

import jinja2.ext
import jinja2.sandbox

FOLDER = pathlib.Path(__file__).parent
CONTEXT = {
    "messages": [
        {"role": "user", "content": "hé llo ", "weight": 1.5, "n": None, "whole": 2.0},
        {"role": "assistant", "content": " straße\n\n<think>a</think>b", "flag": True},
        {"role": "tool", "content": [{"type": "text", "text": "x"}]},
    ],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}, "required": ["a"], "n": 1e-7,
               "m": 1.0, "k": 12345678901234567890, "e": 1e22, "neg": -0.5, "items": [1]}}}],
    "people": [{"name": "Ann", "age": 3, "at": {"city": "ü"}}, {"name": "bob", "age": 1, "at": {"city": "A"}}, {"name": "Cid", "age": 3, "at": {"city": "a"}}],
    "bos_token": "<s>",
    "text": "The quick brown fox",
    "greek": "ΑΣ ΟΔΟΣ ǆ ﬁ ŉ İ",
    "mixed": "a\u00a0b\u2028c\x1fd\x85e",
    "emoji": "👩‍🚀 naïve",
}


class Raised(Exception):
    pass


def refuse(text):
    raise Raised(text)


class TemplateDict:
    def __call__(self, *args, **kwargs):
        return dict(*args, **kwargs)

    def fromkeys(self, *args, **kwargs):
        return dict.fromkeys(*args, **kwargs)


class TemplateNamespace(jinja2.utils.Namespace):
    def __init__(*args, **kwargs):
        self, attributes = args[0], dict(*args[1:], **kwargs)
        for name in attributes:
            TemplateNamespace.check(name)
        jinja2.utils.Namespace.__init__(self, attributes)

    def __setitem__(self, name, value):
        TemplateNamespace.check(name)
        jinja2.utils.Namespace.__setitem__(self, name, value)

    @staticmethod
    def check(name):
        if name.startswith("_"):
            raise jinja2.exceptions.SecurityError(name)


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_written"), [], [], body).set_lineno(line)

    def _written(self, caller):
        return caller()


def to_json(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def environment():
    made = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    made.filters["tojson"] = to_json
    made.globals.update(raise_exception=refuse, strftime_now=lambda form: "<" + form + ">", dict=TemplateDict(), namespace=TemplateNamespace)
    return made


def main():
    expressions = (FOLDER / "expressions.txt").read_text().splitlines()
    templates = ["{{ " + line + " }}" for line in expressions if line] + (FOLDER / "templates.txt").read_text().split("\n====\n")
    cases = []
    for template in dict.fromkeys(templates):
        case = {"template": template}
        try:
            case["text"] = environment().from_string(template).render(**copy.deepcopy(CONTEXT))
        except Raised as raised:
            case["raised"] = str(raised)
        except Exception as error:
            case["error"] = type(error).__name__
        if " at 0x" in case.get("text", ""):  # of a Python object, which nobody means to write
            case = {"template": template, "error": "address"}
        cases.append(case)
    expected = json.dumps({"context": CONTEXT, "cases": cases}, ensure_ascii=False, indent=1)
    (FOLDER / "expected.json").write_text(expected + "\n")
    print(len(cases), "cases,", sum("text" in case for case in cases), "with a text")


if __name__ == "__main__":
    main()
