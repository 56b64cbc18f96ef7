"""Writes nsys.sqlite: tables of an SQLite export of Nsight Systems, with the columns of its published schema, and rows
of two processes that share a GPU, which the second one knows as its first (CUDA_VISIBLE_DEVICES)."""

import os
import sqlite3
import sys

# Column names as in an export. The comments are there because exports have some, with commas and brackets.
SCHEMA = """
CREATE TABLE StringIds (
    -- texts, which (other) tables name by id

    id                          INTEGER   NOT NULL   PRIMARY KEY,      -- of the text, and of the row
    value                       TEXT      NOT NULL
);
CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER, utcTime TEXT, localTime TEXT);
CREATE TABLE TARGET_INFO_GPU (
    vmId INTEGER NOT NULL, id INTEGER NOT NULL, name TEXT, busLocation TEXT, isDiscrete INTEGER, l2CacheSize INTEGER,
    totalMemory INTEGER
);
CREATE TABLE TARGET_INFO_CUDA_DEVICE (
    gpuId INTEGER, cudaId INTEGER NOT NULL, pid INTEGER NOT NULL, uuid TEXT, numMultiprocessors INTEGER
);
CREATE TABLE TARGET_INFO_SYSTEM_ENV (
    globalVid INTEGER, devStateName TEXT NOT NULL, name TEXT NOT NULL, nameEnum INTEGER NOT NULL, value TEXT NOT NULL
);
CREATE TABLE META_DATA_EXPORT (name TEXT NOT NULL, value TEXT);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (
    start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL, globalTid INTEGER, correlationId INTEGER,
    nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL, callchainId INTEGER
);
CREATE TABLE CUDA_CALLCHAINS (
    id INTEGER NOT NULL, symbol INTEGER NOT NULL, module INTEGER NOT NULL, unresolved INTEGER, originalIP INTEGER,
    stackDepth INTEGER NOT NULL,

    PRIMARY KEY (id, stackDepth)
);
CREATE TABLE CUDA_GPU_MEMORY_USAGE_EVENTS (
    start                       INTEGER   NOT NULL,                    -- nanoseconds
    globalPid INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, address INTEGER NOT NULL,
    pc INTEGER NOT NULL, bytes INTEGER NOT NULL, memKind INTEGER NOT NULL, memoryOperationType INTEGER NOT NULL,
    name TEXT, correlationId INTEGER, streamId INTEGER
);
"""

MALLOC, FREE, LAUNCH, HOST_ALLOC, LIBRARY, TRAIN, MAIN, PROGRAM = range(1, 9)
STRINGS = ["cudaMalloc_v3020", "cudaFree_v3020", "cudaLaunchKernel_v7000", "cudaHostAlloc_v3020",
           "/usr/lib/libcudart.so.12", "Trainer::step(int)", "main", "/home/user/train"]
FIRST, SECOND = [(1 << 48) | (pid << 24) for pid in (4242, 4243)]
DEVICE, PINNED, STATIC, PAGEABLE = 2, 1, 5, 0
MIB = 1 << 20
LOW, HIGH = 0x7F5200000000, 0x7F5300000000


def main(path):
    if os.path.exists(path):
        os.remove(path)
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA page_size = 1024")
        db.executescript(SCHEMA)

        def insert(table, *row):
            db.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)

        for row, text in enumerate(STRINGS, 1):
            insert("StringIds", row, text)
        # A string of several pages, as long names of templates are.
        insert("StringIds", 100, "std::invoke<" + "int, " * 1000 + "int>")
        insert("TARGET_INFO_SESSION_START_TIME", 1_790_000_000_000_000_000, "", "")
        insert("TARGET_INFO_GPU", 0, 0, "NVIDIA A", "0000:43:00.0", 1, 0, 40 << 30)
        insert("TARGET_INFO_GPU", 0, 1, "NVIDIA B", "0000:52:00.0", 1, 0, 80 << 30)
        for gpu, cuda, pid in [(0, 0, 4242), (1, 1, 4242), (1, 0, 4243)]:
            insert("TARGET_INFO_CUDA_DEVICE", gpu, cuda, pid, None, 108)
        insert("TARGET_INFO_SYSTEM_ENV", 0, "Host", "Hostname", 1, "node-1")
        insert("META_DATA_EXPORT", "EXPORT_PRODUCT_VERSION", "2025.3.1.90")
        chain = [(MALLOC, LIBRARY), (TRAIN, PROGRAM), (100, PROGRAM), (MAIN, PROGRAM)]
        for depth, (symbol, module) in enumerate(chain):
            insert("CUDA_CALLCHAINS", 7, symbol, module, 0, 0x1000 + depth, depth)

        def call(time, process, correlation, name, returned=0, chain=None):
            insert("CUPTI_ACTIVITY_KIND_RUNTIME", time, time + 50, 1, process | 11, correlation, name, returned, chain)

        def event(time, process, device, address, size, operation, kind=DEVICE, correlation=None, name=None):
            insert("CUDA_GPU_MEMORY_USAGE_EVENTS", time, process, device, 1, address, 0, size, kind, operation, name,
                   correlation, 7)

        event(5, FIRST, 0, LOW - MIB, 4096, 0, STATIC, name="weights_table")
        # Rows do not have the order of their times.
        call(300, FIRST, 3, FREE)
        event(310, FIRST, 0, LOW, 4 * MIB, 1, correlation=3)
        call(100, FIRST, 1, MALLOC, chain=7)
        event(110, FIRST, 0, LOW, 4 * MIB, 0, correlation=1)
        call(200, FIRST, 2, MALLOC)
        event(210, FIRST, 1, HIGH, 2 * MIB, 0, correlation=2)
        # The other process has the same addresses and correlation ids, and sees the second GPU as its first.
        call(220, SECOND, 1, MALLOC, chain=7)
        event(230, SECOND, 0, HIGH, 8 * MIB, 0, correlation=1)
        call(240, SECOND, 2, HOST_ALLOC)
        event(250, SECOND, 0, LOW, 65536, 0, PINNED, correlation=2)
        event(260, SECOND, 0, 0x5000, 128, 0, PAGEABLE)
        # Allocated before the capture.
        event(320, FIRST, 0, LOW + 64 * MIB, 16 * MIB, 1)
        call(400, SECOND, 4, MALLOC, returned=2)
        for number in range(120):
            call(500 + number, FIRST, 100 + number, LAUNCH)


if __name__ == "__main__":
    main(sys.argv[1])
