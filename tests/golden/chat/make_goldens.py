"""Writes expected.json: what jinja2, set up as transformers sets it up for chat templates, makes of chats by the templates of this folder,
which are like those of common families. Run it with the Python of .deps/venv, where torch has brought jinja2."""
import json
import pathlib

import jinja2.ext
import jinja2.sandbox

FOLDER = pathlib.Path(__file__).parent
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
TOOLS = [{"type": "function", "function": {"name": "rain", "description": "Übersicht", "parameters": {
    "type": "object", "properties": {"zone": {"type": "string"}, "days": {"type": "integer"}}, "required": ["zone"]}}}]


def message(role, content, **more):
    return {"role": role, "content": content, **more}


TURNS = [message("user", " Hi?\n"), message("assistant", "Yes. "), message("user", "And ü?"), message("assistant", "No")]
CALL = [message("user", "Rain?"),
        message("assistant", "", tool_calls=[{"type": "function", "function": {"name": "rain", "arguments": {"zone": "n", "days": 2}}}]),
        message("tool", "7 mm"), message("assistant", "Yes, 7 mm")]
CHATS = {
    "one turn": TURNS[:2],
    "two turns": TURNS,
    "system": [message("system", " Be\n"), *TURNS],
    "long": [*TURNS, *TURNS],
    "user last": TURNS[:3],
    "assistant twice": [TURNS[0], TURNS[1], TURNS[3]],
    "another role": [message("poet", "x"), *TURNS],
    "thoughts": [TURNS[0], message("assistant", "<think>\nhm\n</think>\n\nYes"), TURNS[2], message("assistant", "<think>\nso\n</think>\n\nNo")],
    "tools": (CALL, TOOLS),
    "parts": [message("user", [{"type": "text", "text": "a "}, {"type": "text", "text": "b"}]), message("assistant", [{"type": "text", "text": "c"}])],
}
CASES = {
    "chatml": ["one turn", "two turns", "system", "user last", "assistant twice", "thoughts", "tools"],
    "llama3": ["one turn", "two turns", "system", "long", "user last", "tools"],
    "mistral": ["one turn", "two turns", "system", "user last", "assistant twice", "another role"],
    "mistral_last": ["one turn", "two turns", "system"],
    "gemma": ["two turns", "system", "assistant twice", "parts"],
    "macros": ["one turn", "two turns", "system", "another role", "tools", "parts"],
    "qwen3": ["one turn", "two turns", "system", "thoughts"],
}


class Refusal(Exception):
    pass


def refuse(text):
    raise Refusal(text)


def environment():
    made = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols])
    made.filters["tojson"] = lambda value, indent=None: json.dumps(value, ensure_ascii=False, indent=indent)
    made.globals["raise_exception"] = refuse
    return made


def main():
    cases = []
    for name, chats in CASES.items():
        template = environment().from_string((FOLDER / f"{name}.jinja").read_text())
        for chat in chats:
            messages, tools = CHATS[chat] if isinstance(CHATS[chat], tuple) else (CHATS[chat], None)
            for prompts in (False, True):
                case = {"template": name, "chat": chat, "messages": messages, "tools": tools, "prompts": prompts}
                try:
                    case["text"] = template.render(messages=messages, tools=tools, add_generation_prompt=prompts, **TOKENS)
                except Refusal as refusal:
                    case["refusal"] = str(refusal)
                cases.append(case)
    (FOLDER / "expected.json").write_text(json.dumps(cases, ensure_ascii=False, indent=1) + "\n")


if __name__ == "__main__":
    main()
