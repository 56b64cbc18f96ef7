"""Runs the queries of docs/ranks.md in one query engine, over the data set `fleet` in the current folder.

    PYTHONPATH=target/duckdb python3 viewer/tests/cli/query.py duckdb outliers difference

The first argument is an engine: duckdb, datafusion or spark. Each further one is the name of a query of the page, or
SQL. Prints one JSON object with the columns and rows of each answer, and how long it took.
"""

import json
import os
import pathlib
import sys
import time

PAGE = pathlib.Path(__file__).parents[3] / "docs" / "ranks.md"


class DuckDB:
    def __init__(self):
        import duckdb

        self.version = duckdb.__version__
        self.connection = duckdb.connect()

    def run(self, sql):
        answer = self.connection.execute(sql)
        return [column[0] for column in answer.description], answer.fetchall()

    def close(self):
        self.connection.close()


class DataFusion:
    def __init__(self):
        import datafusion

        self.version = datafusion.__version__
        self.context = datafusion.SessionContext()

    def run(self, sql):
        columns = self.context.sql(sql).to_pydict()
        return list(columns), list(zip(*columns.values()))

    def close(self):
        pass


class Spark:
    """A cluster on this machine: a master, and workers that each run an executor process of one core and 1 GiB."""

    WORKERS = 2

    def __init__(self):
        # The driver and the executors talk over the loopback interface: the machine needs no other.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        import pyspark
        from pyspark.sql import SparkSession

        self.version = pyspark.__version__
        builder = SparkSession.builder.master(f"local-cluster[{self.WORKERS},1,1024]")
        builder = builder.config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false")
        # Queries wait for all executors; otherwise the first one may run them alone.
        builder = builder.config("spark.scheduler.minRegisteredResourcesRatio", "1.0")
        builder = builder.config("spark.scheduler.maxRegisteredResourcesWaitingTime", "120s")
        self.session = builder.getOrCreate()

    def run(self, sql):
        # Spark's function always replaces all matches; its fourth argument is a position.
        answer = self.session.sql(sql.replace(", 'g')", ")"))
        return answer.columns, answer.collect()

    def close(self):
        # The driver is counted too.
        workers = self.session.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1
        self.session.stop()
        if workers != self.WORKERS:
            raise RuntimeError(f"{workers} of {self.WORKERS} workers answered")


ENGINES = {"duckdb": DuckDB, "datafusion": DataFusion, "spark": Spark}


def block(page, mark):
    """The SQL after a mark of the page."""
    return page.split(f"<!-- {mark} -->\n```sql\n")[1].split("\n```")[0]


def main():
    name, *queries = sys.argv[1:]
    page = PAGE.read_text(encoding="utf-8")
    start = time.monotonic()
    engine = ENGINES[name]()
    # Without queries, this only checks that the engine runs.
    for statement in block(page, f"tables: {name}").split(";") if queries else ["select 1 as one"]:
        if statement.strip():
            engine.run(statement)
    started = time.monotonic()
    answers = []
    for query in queries:
        before = time.monotonic()
        columns, rows = engine.run(query if " " in query else block(page, f"query: {query}"))
        answers.append({"columns": columns, "rows": rows, "seconds": round(time.monotonic() - before, 2)})
    engine.close()
    start_seconds = round(started - start, 2)
    print(json.dumps({"engine": name, "version": engine.version, "start_seconds": start_seconds, "answers": answers}))


if __name__ == "__main__":
    main()
