// The editor's page in a browser, in place of VS Code's webview: the frame is shown, and its messages arrive.
"use strict";

const assert = require("node:assert/strict");
const { execFileSync } = require("node:child_process");
const fs = require("node:fs");
const http = require("node:http");
const os = require("node:os");
const path = require("node:path");
const { after, beforeEach, test } = require("node:test");
const { fake } = require("./vscode");
const chromium = require("./chromium");
const { pageMissing, program } = require("./program");
const { framePage } = require("../src/pages");
const { Server, endAll } = require("../src/server");

const browser = chromium.program();
const missing = browser || process.env.HIGHWATER_REQUIRE_BROWSER ? false : "there is no Chromium";
const root = fs.mkdtempSync(path.join(os.tmpdir(), "highwater-vscode-"));
const WEBVIEW =
  "globalThis.sent = []; globalThis.acquireVsCodeApi = () => ({ postMessage: (message) => sent.push(message) });";

beforeEach(() => fake.reset());
after(() => {
  endAll();
  fs.rmSync(root, { recursive: true });
});

async function until(isTrue) {
  for (let turn = 0; turn < 1200; turn++) {
    if (await isTrue()) return;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  assert.fail(`never: ${isTrue}`);
}

/** Shows the recording in a browser as VS Code does, whose page is of another site than the frame; calls `look`. */
async function shown(file, look) {
  const server = new Server(fake.Uri.file(file));
  const address = (await server.address()).toString();
  const host = http.createServer((_, response) =>
    response.setHeader("Content-Type", "text/html").end(framePage(address)),
  );
  await new Promise((resolve) => host.listen(0, "127.0.0.1", resolve));
  const outer = `http://localhost:${host.address().port}`;
  const page = new chromium.Chromium(browser);
  try {
    await page.open(outer, WEBVIEW);
    await look({ page, outer, inner: new URL(address).origin });
  } finally {
    // The browser last: if it fails to close, the server must not keep the test program running.
    host.close();
    server.dispose();
    await page.close();
  }
}

test("the frame is shown, and the line that it asks for reaches the extension", { skip: missing }, async () => {
  fake.settings["highwater.path"] = path.join(__dirname, "highwater");
  await shown("/recordings/step.snap", async ({ page, outer, inner }) => {
    const sent = () => page.value(outer, "JSON.stringify(sent)");
    await until(async () => (await sent())?.length > 2);
    const asked = JSON.stringify([{ kind: "open", file: "/code/model.py", line: 7 }]);
    assert.equal(await sent(), asked);
    assert.equal(await page.value(inner, "document.title"), "step.snap");
    // Another window, here the webview itself.
    await page.value(outer, `postMessage({ highwater: "open", file: "/code/other.py", line: 1 })`);
    await page.value(inner, `parent.postMessage({ highwater: "other" }, "*")`);
    await new Promise((resolve) => setTimeout(resolve, 200));
    assert.equal(await sent(), asked);
  });
});

test("the app shows the recording", { skip: missing || pageMissing() }, async () => {
  fake.settings["highwater.path"] = program.path;
  const file = path.join(root, "mlp.snap");
  execFileSync(program.path, ["record", "mlp", "--out", file], { stdio: "ignore" });
  const { bytes } = JSON.parse(execFileSync(program.path, ["peak", file, "--json"], { encoding: "utf8" }));
  await shown(file, async ({ page, outer, inner }) => {
    const state = async () => JSON.parse((await page.value(inner, "JSON.stringify(highwater.state())")) ?? "null");
    await until(async () => (await state())?.front?.has_picture);
    const { front, failures } = await state();
    assert.deepEqual([front.name, front.peak_bytes, failures], ["mlp.snap", bytes, []]);
    await until(() => page.value(inner, "highwater.has_editor()"));
    await page.value(inner, `highwater.open_line("/code/model.py", 7)`);
    const sent = () => page.value(outer, "JSON.stringify(sent)");
    await until(async () => (await sent())?.length > 2);
    assert.equal(await sent(), JSON.stringify([{ kind: "open", file: "/code/model.py", line: 7 }]));
    if (process.env.HIGHWATER_SCREENSHOT) await page.screenshot(process.env.HIGHWATER_SCREENSHOT);
  });
});
