// Chromium without a window, driven over a pipe by its debugging protocol.
"use strict";

const { spawn, spawnSync } = require("node:child_process");
const fs = require("node:fs");
const os = require("node:os");
const path = require("node:path");

/** The browser's program; none if it is not installed. */
function program() {
  const names = ["chromium", "chromium-browser", "google-chrome"];
  return names.find((name) => spawnSync(name, ["--version"], { stdio: "ignore" }).status === 0);
}

class Chromium {
  constructor(name) {
    this.profile = fs.mkdtempSync(path.join(os.tmpdir(), "highwater-chromium-"));
    // All frames in one process, so that one session sees the scripts of all.
    const words = [
      "--headless",
      "--no-sandbox",
      "--no-first-run",
      "--remote-debugging-pipe",
      "--disable-site-isolation-trials",
    ];
    words.push(
      "--use-angle=swiftshader",
      "--enable-unsafe-swiftshader",
      "--window-size=1440,900",
      `--user-data-dir=${this.profile}`,
    );
    // In a process group of its own, so that `close` ends the processes that it starts too.
    this.child = spawn(name, words, { detached: true, stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"] });
    this.number = 0;
    this.calls = new Map();
    /** The scripts' contexts by origin. */
    this.contexts = new Map();
    let text = "";
    this.child.stdio[4].setEncoding("utf8").on("data", (part) => {
      const messages = (text + part).split("\0");
      text = messages.pop();
      messages.forEach((message) => this.receive(JSON.parse(message)));
    });
  }

  receive({ id, result, error, method, params }) {
    if (method === "Runtime.executionContextCreated") this.contexts.set(params.context.origin, params.context.id);
    const call = this.calls.get(id);
    if (error) call?.reject(new Error(error.message));
    else call?.resolve(result);
    this.calls.delete(id);
  }

  call(method, params = {}) {
    const id = ++this.number;
    this.child.stdio[3].write(`${JSON.stringify({ id, method, params, sessionId: this.session })}\0`);
    return new Promise((resolve, reject) => this.calls.set(id, { resolve, reject }));
  }

  /** Opens a page, in which `script` runs before the page's own. */
  async open(url, script) {
    const { targetId } = await this.call("Target.createTarget", { url: "about:blank" });
    this.session = (await this.call("Target.attachToTarget", { targetId, flatten: true })).sessionId;
    await this.call("Page.enable");
    await this.call("Runtime.enable");
    await this.call("Page.addScriptToEvaluateOnNewDocument", { source: script });
    await this.call("Page.navigate", { url });
  }

  /** The value of an expression in the frame of an origin; nothing if there is no such frame, or it throws. */
  async value(origin, expression) {
    const contextId = this.contexts.get(origin);
    if (contextId === undefined) return undefined;
    const answer = await this.call("Runtime.evaluate", { expression, contextId, returnByValue: true }).catch(
      () => undefined,
    );
    return answer?.result.value;
  }

  async screenshot(file) {
    fs.writeFileSync(file, Buffer.from((await this.call("Page.captureScreenshot")).data, "base64"));
  }

  async close() {
    if (this.child.exitCode === null && this.child.signalCode === null) {
      const ended = new Promise((resolve) => this.child.once("close", resolve));
      process.kill(-this.child.pid, "SIGKILL");
      await ended;
    }
    await this.removeProfile();
  }

  /** Processes that were killed may still write for a moment, so that a folder is not empty after its files are deleted. */
  async removeProfile() {
    for (let turn = 0; turn < 50; turn++) {
      try {
        return fs.rmSync(this.profile, { recursive: true, force: true });
      } catch {
        await new Promise((resolve) => setTimeout(resolve, 100));
      }
    }
    console.warn(`${this.profile} is left: it cannot be deleted`);
  }
}

module.exports = { Chromium, program };
