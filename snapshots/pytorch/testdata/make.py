#!/usr/bin/env python3
"""Make: records the programs, writes the other forms, and works out what a reader must find in each file.

    python make.py              records everything anew (with a Python that has PyTorch; two_devices needs two GPUs)
    python make.py PROGRAM…     records these programs anew, as `slack`
    python make.py --figures    leaves the recordings as they are: writes forms and expected.json anew

Sizes do not depend on the GPU, so that expected.json stays as it is for one version of PyTorch; addresses and times
do. How long blocks wait for another stream depends on how busy that is.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

from forms import write_forms
from replay import TOTALS, annotations, differences, figures, load

HERE = pathlib.Path(__file__).resolve().parent
EXPECTED = HERE / "expected.json"
HELPERS = ("net", "saved")
SHOWN = tuple(total for total in TOTALS if total != "unfinished")


def record(wanted):
    """Runs the programs, all if none is named; what PyTorch told beside each recording."""
    told = {}
    for program in sorted((HERE / "programs").glob("*.py")):
        if program.stem in HELPERS or wanted and program.stem not in wanted:
            continue
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-B", program.name, folder]
            done = subprocess.run(command, cwd=program.parent, check=False)
            if done.returncode:
                print(f"{program.name} failed: its recordings stay as they are", file=sys.stderr)
                continue
            for path in pathlib.Path(folder).iterdir():
                if path.suffix == ".told":
                    told[path.stem] = {"program": program.name, **json.loads(path.read_text())}
                else:
                    (HERE / path.name).write_bytes(path.read_bytes())
    return told


def expected(path, origin):
    """What a reader must find in the file."""
    snapshot = load(path)
    devices = figures(snapshot)
    for one in devices.values():
        for moment in ("baseline", "end", "peaks"):
            one[moment] = {total: one[moment][total] for total in SHOWN}
        for total in SHOWN[1:]:
            one["peaks"][total].pop("frames", None)
    host = len(snapshot.get("host_traces") or [])
    return {**origin, "annotations": annotations(snapshot), "host_events": host, "devices": devices}


def main():
    old = json.loads(EXPECTED.read_text()) if EXPECTED.exists() else {}
    origins = {name: {"program": one["program"], "pytorch": one["pytorch"]} for name, one in old.items() if "program" in one}
    if "--figures" not in sys.argv[1:]:
        origins |= {name: {"program": told.pop("program"), "pytorch": told} for name, told in record(sys.argv[1:]).items()}
    origins |= {name: {"made_from": source} for name, source in write_forms(HERE).items()}
    found = {name: expected(HERE / name, origins[name]) for name in sorted(origins)}
    EXPECTED.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    failed = 0
    for name in sorted(found):
        made, wrong = differences(HERE / name, load(HERE / name))
        print(f"{name}: {'; '.join(wrong) or 'agrees'} ({', '.join(made) or 'nothing to check against'})")
        failed += bool(wrong)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
