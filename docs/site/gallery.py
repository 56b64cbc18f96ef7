"""Builds the gallery: pages that contain the app and a recording, their pictures, and the page that lists them.

    python docs/site/gallery.py OUT [--highwater PROGRAM] [--python PYTHON]

needs a highwater with the app for browsers in it, and a Python with PyTorch for CUDA, which the simulated GPU runs.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field

WIDTH, HEIGHT = 1200, 675
PROGRAMS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "tasks", "programs")


@dataclass
class Recording:
    """A recording, or two to compare. Has the commands that make it, and their expected exit status."""

    name: str
    title: str
    sentence: str
    commands: list
    files: list
    picture: list = field(default_factory=list)
    status: int = 0


RANKS = [
    f"env RANK={rank} WORLD_SIZE=4 highwater record gpt2 --batch {batch} --steps 2 --out ranks/rank{rank}.snap"
    for rank, batch in enumerate((2, 2, 3, 2))
]

GALLERY = [
    Recording(
        "training-step",
        "A training step",
        "Three steps of ViT-L/16 with Adam: parameters at the bottom, activations in forward, gradients in backward, "
        "and the optimizer's temporaries, which make the peak.",
        ["highwater record vit-l-16 --out training-step.snap"],
        ["training-step.snap"],
    ),
    Recording(
        "out-of-memory",
        "Out of memory",
        "A full fine-tune of Falcon-7B on a device of 40 GiB: the cross marks the request that failed, and *Segments* "
        "shows why it did not fit.",
        ["highwater record falcon-7b --capacity 40GiB --out out-of-memory.snap"],
        ["out-of-memory.snap"],
        ["--view", "segments"],
        status=2,
    ),
    Recording(
        "leak",
        "A leak",
        "[leak.py](../docs/tasks/memory-leak.md) keeps the validation loss of every step with its graph: each step "
        "leaves its activations, in the colour of leaks.",
        ["highwater simulate --gpu h100 --steps 0 --out leak.snap -- python leak.py"],
        ["leak.snap"],
    ),
    Recording(
        "comparison",
        "Two recordings compared",
        "The same training step with the optimizer after backward and inside backward: 2.07 GiB less, by category.",
        [
            "highwater record vit-l-16 --steps 2 --out after.snap",
            "highwater record vit-l-16 --steps 2 --optimizer-in-backward --out within.snap",
        ],
        ["after.snap", "within.snap"],
        ["--view", "diff"],
    ),
    Recording(
        "ranks",
        "A rank that stands out",
        "Of four ranks of GPT-2, rank 2 has a larger batch: compared with a typical rank, as `highwater diff ranks` "
        "does.",
        RANKS,
        ["ranks/rank0.snap", "ranks/rank2.snap"],
        ["--view", "diff"],
    ),
    Recording(
        "long",
        "A long recording",
        "2,500 steps of ViT-L/16, nearly nine million events: the strip above the timeline shows all of it, the "
        "timeline a part with every block.",
        ["highwater record vit-l-16 --steps 2500 --out long.snap"],
        ["long.snap"],
    ),
    Recording(
        "simulated-llama",
        "A PyTorch program on a simulated GPU",
        "[A small Llama](../docs/tasks/without-a-gpu.md) in PyTorch, run without a GPU as on an RTX 4090; key 2 "
        "colours it by module.",
        ["highwater simulate --gpu rtx4090 --out simulated-llama.snap -- python train.py"],
        ["simulated-llama.snap"],
    ),
]


class Programs:
    """Runs commands in a folder, using the given programs for `highwater` and `python`."""

    def __init__(self, highwater, python, folder):
        names = {"highwater": highwater, "python": python}
        self.names = {name: os.path.abspath(shutil.which(path) or path) for name, path in names.items()}
        self.folder = folder

    def run(self, command, status=0):
        """Runs a command. Ends the script with the command's output if the exit status is not the expected one."""
        words = [self.names.get(word, word) for word in command.split()]
        done = subprocess.run(words, cwd=self.folder, capture_output=True, text=True)
        if done.returncode != status:
            said = (done.stdout + done.stderr)[-2000:]
            sys.exit(f"{said}\nerror: status {done.returncode} instead of {status} of: {command}")

    def require_app(self):
        """Ends the script if the program cannot write pages, before spending minutes on the recordings."""
        self.run("highwater record mlp --out small.snap")
        words = [self.names["highwater"], "convert", "small.snap", "small.html"]
        done = subprocess.run(words, cwd=self.folder, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{done.stderr}The gallery needs a program with the app in it; name it with --highwater.")


def listing(made):
    """Returns the page of the gallery."""
    lines = [
        "# Gallery",
        "",
        "Each recording opens in the app, in this browser: nothing is installed, and nothing is sent anywhere. A page "
        "is one file, as [`highwater convert`](../docs/web.md#as-one-file) writes it; a click on a picture opens it.",
        "",
    ]
    for recording, bytes_ in made:
        lines += [
            f"## {recording.title}",
            "",
            f'<a href="{recording.name}.html"><img src="{recording.name}.png" alt="{recording.title}" loading="lazy" '
            f'width="{WIDTH}" height="{HEIGHT}"></a>',
            "",
            f"{recording.sentence} [Open it]({recording.name}.html) ({bytes_ / 2**20:.1f} MiB).",
            "",
            "```",
            *recording.commands,
            f"highwater convert {' '.join(recording.files)} {recording.name}.html",
            "```",
            "",
        ]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", help="the folder to write, for build.py --gallery")
    parser.add_argument("--highwater", default=shutil.which("highwater"), help="the program [default: on the path]")
    parser.add_argument("--python", default=sys.executable, help="a Python with PyTorch [default: this one]")
    options = parser.parse_args()
    if not options.highwater:
        sys.exit("error: no highwater on the path: build it, and name it with --highwater")
    os.makedirs(options.out, exist_ok=True)
    out = os.path.abspath(options.out)
    made = []
    with tempfile.TemporaryDirectory() as folder:
        programs = Programs(options.highwater, options.python, folder)
        programs.require_app()
        for name in os.listdir(PROGRAMS):
            shutil.copy(os.path.join(PROGRAMS, name), folder)
        os.mkdir(os.path.join(folder, "ranks"))
        for recording in GALLERY:
            print(f"{recording.name} …", flush=True)
            page, picture = (os.path.join(out, f"{recording.name}.{ending}") for ending in ("html", "png"))
            files = " ".join(recording.files)
            for command in recording.commands:
                programs.run(command, recording.status)
            programs.run(f"highwater convert {files} {page}")
            view = " ".join(recording.picture)
            programs.run(f"highwater render {files} --out {picture} --size {WIDTH}x{HEIGHT} {view}")
            made.append((recording, os.path.getsize(page)))
    with open(os.path.join(out, "README.md"), "w", encoding="utf-8") as file:
        file.write(listing(made))
    print(f"{out}: {len(made)} recordings; next: python docs/site/build.py --gallery {options.out}")


if __name__ == "__main__":
    main()
