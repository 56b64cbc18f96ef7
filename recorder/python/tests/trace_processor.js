// Runs the trace processor of Perfetto's page: reads requests from standard input and writes the answers to standard
// output, both as messages of trace_processor.proto. The argument is the folder of the page.
"use strict";

const fs = require("node:fs");
const path = require("node:path");

const folder = process.argv[2];

/** Reads the program for the page. */
class Request {
  open(_, address) {
    this.file = path.join(folder, path.basename(address));
  }
  send() {
    this.response = fs.readFileSync(this.file);
  }
}

const worker = { location: { href: "file:///" } };
const surroundings = { self: worker, WorkerGlobalScope: Object, XMLHttpRequest: Request, process: undefined };
const page = fs.readFileSync(path.join(folder, "engine_bundle.js"), "utf8");
new Function(...Object.keys(surroundings), page)(...Object.values(surroundings));
const port = { postMessage: (answer) => fs.writeSync(1, answer) };
worker.onmessage({ data: port });
// It is ready after the promises that are kept by now.
setImmediate(() => port.onmessage({ data: new Uint8Array(fs.readFileSync(0)) }));
