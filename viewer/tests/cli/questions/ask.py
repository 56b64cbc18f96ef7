"""Puts the questions of `questions.json` to a model, and checks the figures in its answers.

    HIGHWATER_QUESTIONS=/tmp/questions cargo test -p highwater --test cli questions
    python viewer/tests/cli/questions/ask.py /tmp/questions -- my-assistant --mcp-config {config} {question}

The first command makes the recordings. The second one starts the command after `--` once for each question, in the
folder of the recordings: {question} stands for the question, and {config} for a file with the configuration of the
server, `{"mcpServers": {"highwater": …}}`. Without {question} the question is its standard input. Its standard output
is the answer.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "KB": 10**3, "MB": 10**6, "GB": 10**9}


def has_bytes(answer, wanted):
    """Whether a text has a number of bytes: to the byte, or rounded to the decimals that it has."""
    for number, unit in re.findall(r"(\d[\d,_ ]*(?:\.\d+)?)\s*(bytes|[KMG]i?B|B)?", answer):
        digits = re.sub(r"[,_ ]", "", number)
        decimals = len(digits.partition(".")[2])
        unit = UNITS.get(unit, 1)
        # A figure that was rounded is off by half of its last digit.
        if unit == 1 and float(digits) == wanted:
            return True
        if unit > 1 and abs(float(digits) * unit - wanted) <= (0.5001 * unit / 10**decimals if decimals else 0):
            return True
    return False


def is_right(question, answer):
    if "bytes" in question:
        return has_bytes(answer, question["bytes"])
    if isinstance(question.get("value"), bool):
        # "No idea" is no answer.
        words = re.findall(r"^\W*(yes|no)\b[*_`'\"]*[ \t]*(?:[^\w\s]|$)", answer.lower(), re.MULTILINE)
        return words[:1] == ["yes" if question["value"] else "no"]
    return question["says"].lower() in answer.lower()


def ask(question, command, folder, config, limit):
    text = (
        f"{question['ask']}\nThe recording is {question['file']}. Use the tools of the server highwater. "
        "If the answer is yes or no, begin with that word; if it is a size, state it with its unit."
    )
    words = [word.replace("{config}", config).replace("{question}", text) for word in command]
    is_given = any("{question}" in word for word in command)
    done = subprocess.run(
        words, input=None if is_given else text, stdin=subprocess.DEVNULL if is_given else None,
        capture_output=True, text=True, cwd=folder, timeout=limit,
    )
    return done.stdout


def main():
    usage, form = "%(prog)s [options] folder -- command", argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(usage=usage, description=__doc__, formatter_class=form)
    parser.add_argument("folder", help="folder with the recordings")
    parser.add_argument("--highwater", default="highwater", help="the program")
    parser.add_argument("--limit", type=float, default=300, help="seconds for an answer")
    end = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    options, command = parser.parse_args(sys.argv[1:end]), sys.argv[end + 1 :]
    if not command:
        parser.error("no command: add -- and the words that start an assistant")
    with open(os.path.join(HERE, "questions.json"), encoding="utf-8") as file:
        questions = json.load(file)["questions"]
    folder, right = os.path.abspath(options.folder), 0
    with tempfile.TemporaryDirectory() as temporary:
        config = os.path.join(temporary, "mcp.json")
        with open(config, "w", encoding="utf-8") as file:
            json.dump({"mcpServers": {"highwater": {"command": options.highwater, "args": ["mcp", folder]}}}, file)
        for question in questions:
            start = time.monotonic()
            try:
                answer = ask(question, command, folder, config, options.limit)
            except subprocess.TimeoutExpired:
                answer = ""
            is_good = is_right(question, answer)
            right += is_good
            seconds = time.monotonic() - start
            verdict = "right" if is_good else "WRONG"
            print(f"{verdict}  {seconds:5.1f} s  {question['file']}: {question['ask']}", flush=True)
            if not is_good:
                print("    " + answer.strip().replace("\n", "\n    "), flush=True)
    print(f"{right} of {len(questions)} right")
    return 0 if right == len(questions) else 1


if __name__ == "__main__":
    sys.exit(main())
