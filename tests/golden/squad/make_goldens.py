"""Makes squad.json, features.json and scores.json beside this file: a SQuAD 2.0 file, its windows and token positions by
Hugging Face's BertTokenizerFast, and answers scored by Hugging Face's copy of the official evaluation.

    pip install transformers==4.46.3 && python make_goldens.py     # the last 4.x: 5.x has no squad_metrics
"""

import json
import pathlib

from transformers import BertTokenizerFast
from transformers.data.metrics import squad_metrics

HERE = pathlib.Path(__file__).parent
WINDOWS = {"max_length": 32, "stride": 8}

CONTEXTS = {
    "Eiffel Tower": "The Eiffel Tower \U0001f5fc is a tower in Paris, the capital of France. Caf\u00e9s na\u00efve\u200bly quick: "
    "\ud55c\uad6d\uc5b4 \u4e16\u754c. It was built in 1889 (1,000 grand people), and over 19 million people did see the \"Se\u0301ine\".",
    "Istanbul": "\u0130stanbul is a city. Stra\u00dfe of the fox; [SEP] the lazy dog jumped over the quick fox in New York.",
}
# context, question, answers or None for an impossible one; an answer begins at its first or the given place
QUESTIONS = [
    ("Eiffel Tower", "Where is the tower?", ["Paris", "in Paris"]),
    ("Eiffel Tower", "When was the tower built?", ["1889"]),
    ("Eiffel Tower", "How is the caf\u00e9?", ["na\u00efve\u200bly quick"]),
    ("Eiffel Tower", "What is \ud55c\uad6d\uc5b4?", ["\ud55c\uad6d\uc5b4 \u4e16\u754c"]),
    ("Eiffel Tower", "What did people see?", ["\"Se\u0301ine\""]),
    ("Eiffel Tower", "How many people?", ["19 million people did see the", "million"]),
    ("Eiffel Tower", "Who is a fox?", None),
    ("Istanbul", "What is a city?", ["\u0130stanbul"]),
    ("Istanbul", "Where did the dog jump?", ["over the quick fox"]),
    ("Istanbul", "What is what?", ["[SEP]"]),
]
SCORED = [
    ("Paris", "paris"), ("the Paris", "Paris."), ("in Paris, France", "Paris"), ("", ""), ("", "Paris"), ("the", ""),
    ("the", "Paris"), ("1,889", "1889"), ("a cat an owl the dog", "cat owl dog"), ("a-b c", "ab c"), ("b b b c", "b c c"),
    ("theatre an", "the theatre"), ("\u039f\u0394\u03a5\u03a3\u03a3\u0395\u03a5\u03a3", "\u03bf\u03b4\u03c5\u03c3\u03c3\u03b5\u03c5\u03c2"),
    ("\u0130stanbul", "istanbul"), ("\u0130stanbul", "i\u0307stanbul"), ("Stra\u00dfe", "STRASSE"), ("caf\u00e9", "cafe\u0301"),
    ("a\u0301 x", "\u0301 x"), ("\u201cthe\u201d fox", "\u201c \u201d fox"), ("x\u00a0\u3000y\x1cz", "x y z"), ("\u200bthe\u200b", "\u200b \u200b"),
    ("\u00bda \u4e2da \u2460the", "\u00bda \u4e2da \u2460the"), ("quick brown fox", "the brown, quick dog!"), ("U.S.A.", "usa"), ("\u2028a\u2029b", "b"),
]


def make_file():
    articles = []
    for title, context in CONTEXTS.items():
        questions = []
        for i, (where, question, answers) in enumerate(QUESTIONS):
            if where != title:
                continue
            found = [{"text": a, "answer_start": context.index(a)} for a in answers or []]
            questions.append({"id": f"q{i}", "question": question, "answers": found, "is_impossible": answers is None})
            if answers is None:
                questions[-1]["plausible_answers"] = [{"text": "Paris", "answer_start": context.index("Paris")}]
        articles.append({"title": title, "paragraphs": [{"context": context, "qas": questions}]})
    return {"version": "v2.0", "data": articles}


def positions(answers, offsets, sequence_ids):
    """The first token that holds the answer's first character and the last that holds its last one."""
    if not answers:
        return 0, 0
    begin = answers[0]["answer_start"]
    end = begin + len(answers[0]["text"])
    holds = lambda place: [t for t, (o, s) in enumerate(zip(offsets, sequence_ids)) if s == 1 and o[0] <= place < o[1]]
    first, last = holds(begin), holds(end - 1)
    return (first[0], last[-1]) if first and last else (0, 0)


def features(squad):
    tokenizer = BertTokenizerFast(str(HERE.parent / "word_piece" / "vocab.txt"))
    rows = []
    for article in squad["data"]:
        for paragraph in article["paragraphs"]:
            for question in paragraph["qas"]:
                made = tokenizer(question["question"], paragraph["context"], truncation="only_second", padding="max_length",
                                 return_overflowing_tokens=True, return_offsets_mapping=True, **WINDOWS)
                for i, ids in enumerate(made["input_ids"]):
                    start, end = positions(question["answers"], made["offset_mapping"][i], made.sequence_ids(i))
                    rows.append({"id": question["id"], "ids": ids, "start": start, "end": end})
    return rows


def scores():
    return [{"prediction": a, "truth": b, "normalised": squad_metrics.normalize_answer(a),
             "exact": squad_metrics.compute_exact(b, a), "f1": squad_metrics.compute_f1(b, a)} for a, b in SCORED]


def write_rows(name, rows):
    (HERE / name).write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")


SQUAD = make_file()
(HERE / "squad.json").write_text(json.dumps(SQUAD, indent=1) + "\n")
write_rows("features.json", features(SQUAD))
write_rows("scores.json", scores())
