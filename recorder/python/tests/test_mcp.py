"""`highwater mcp`, asked by the client of the protocol's own package for Python."""

import os
import subprocess
import sys

import pytest

SNAPSHOTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), *[".."] * 3, "snapshots", "pytorch", "testdata")
MAX_ANSWER = 16 << 10
# What a call of a tool needs beside the file.
NEEDED = {
    "plan": {"budget": "1GiB"},
    "check": {"max_peak": "1MiB"},
    "diff": {"at": "peak", "at_b": "end"},
    "whatif": {"alloc_conf": "expandable_segments:True"},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Three recordings, one of which ends with an out-of-memory error, and as many snapshots of PyTorch."""
    folder = tmp_path_factory.mktemp("mcp")
    size = "gpt2 --layers 2 --width 96 --vocab 500 --batch 2 --seq 32 --device meta:cuda"
    for words in ("mlp --out mlp.snap", f"{size} --out gpt2.snap", f"{size} --capacity 20MiB --out oom.snap"):
        subprocess.run(["highwater", "record", *words.split()], cwd=folder, capture_output=True)
    for name in ("train_from_zero.pickle.gz", "two_devices.pickle.gz", "oom.pickle"):
        os.symlink(os.path.join(SNAPSHOTS, name), folder / name)
    (folder / "other.snap").write_bytes((folder / "mlp.snap").read_bytes())
    return folder


def test_every_tool_answers_on_every_recording_and_other_files_are_refused(folder):
    sdk = os.environ.get("HIGHWATER_MCP", "")
    if not os.path.isdir(os.path.join(sdk, "mcp")):
        pytest.skip("HIGHWATER_MCP does not name a folder with the SDK of the Model Context Protocol")
    done = subprocess.run(
        [sys.executable, __file__], cwd=folder, env={**os.environ, "PYTHONPATH": sdk}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


async def talk():
    from mcp import StdioServerParameters
    from mcp.client import Client

    files = sorted(set(os.listdir()) - {"other.snap"})
    assert len(files) == 6
    server = StdioServerParameters(command="highwater", args=["mcp", *files])
    async with Client(server) as client:
        tools = [tool.name for tool in (await client.list_tools()).tools]
        assert (len(tools), client.protocol_version) == (12, "2026-07-28"), tools
        for tool in tools:
            # A picture takes long.
            for file in files if tool != "picture" else files[:1]:
                answer = await client.call_tool(tool, {"file": file, **NEEDED.get(tool, {})})
                size = len(answer.model_dump_json(by_alias=True, exclude_none=True))
                assert not answer.is_error, (tool, file, answer.content)
                if tool == "picture":
                    assert [part.type for part in answer.content] == ["image", "text"]
                else:
                    assert size <= MAX_ANSWER and answer.structured_content, (tool, file, size)
        for file in ("other.snap", "/etc/passwd", "mlp.snap/../other.snap", os.path.abspath("other.snap")):
            answer = await client.call_tool("summary", {"file": file})
            assert answer.is_error and "not one of the recordings" in answer.content[0].text, file
    async with Client(server, mode="legacy") as client:
        (vocabulary,) = (await client.list_resources()).resources
        (content,) = (await client.read_resource(vocabulary.uri)).contents
        assert "| reserved |" in content.text and client.protocol_version == "2025-11-25"


if __name__ == "__main__":
    import anyio

    anyio.run(talk)
