// A running `highwater serve` for one recording, on the machine where extensions run.
"use strict";

const vscode = require("vscode");
const { start } = require("./program");
const { relay } = require("./relay");

/** The servers that run. @type {Set<Server>} */
const running = new Set();
process.once("exit", endAll);

class Server {
  /** @param {vscode.Uri} uri the recording */
  constructor(uri) {
    // Its standard input ends with this process, however that ends.
    const { child, ended } = start(uri, ["serve", "--stop-at-eof"]);
    this.child = child;
    /** Why the program ended, once it has. */
    this.ended = ended.then(({ why }) => why);
    /** @type {{ port: number, close: () => void } | undefined} */
    this.relay = undefined;
    this.isDisposed = false;
    running.add(this);
  }

  /**
   * The address of the page, as the user's browser or VS Code reaches it.
   * @returns {Promise<vscode.Uri>}
   */
  async address() {
    const page = await Promise.race([this.printed(), this.ended]);
    if (page instanceof Error) throw page;
    const started = await relay(page);
    if (this.isDisposed) started.close();
    this.relay = started;
    const own = vscode.Uri.parse(`http://127.0.0.1:${started.port}/`);
    // Forwards the port if this machine is another one. The path is added to that of a proxy.
    const external = await vscode.env.asExternalUri(own);
    return external.with({ path: external.path.replace(/\/$/, "") + page.pathname });
  }

  /** The address that the program prints once it has read the recording. @returns {Promise<URL>} */
  printed() {
    return new Promise((resolve) => {
      let output = "";
      this.child.stdout.setEncoding("utf8").on("data", (text) => {
        output += text;
        const line = /^ {2}(http:\/\/\S+\/)\r?\n/m.exec(output);
        if (line) resolve(new URL(line[1]));
      });
    });
  }

  dispose() {
    this.isDisposed = true;
    running.delete(this);
    this.child.kill();
    this.relay?.close();
  }
}

/** Ends all servers. */
function endAll() {
  for (const server of [...running]) server.dispose();
}

module.exports = { Server, endAll };
