// The server of an editor: its start, its end, what the relay passes on, and what the user reads if it fails.
"use strict";

const assert = require("node:assert/strict");
const { spawn } = require("node:child_process");
const { once } = require("node:events");
const path = require("node:path");
const { after, beforeEach, test } = require("node:test");
const { fake } = require("./vscode");
const { RecordingEditor } = require("../src/editor");
const { Server, endAll } = require("../src/server");

const STAND_IN = path.join(__dirname, "highwater");
const recording = (name) => fake.Uri.file(path.join("/recordings", name));

beforeEach(() => {
  fake.reset();
  fake.settings["highwater.path"] = STAND_IN;
});
after(endAll);

/** Waits until `isTrue`. */
async function until(isTrue) {
  for (let turn = 0; turn < 1000; turn++) {
    if (await isTrue()) return;
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  assert.fail(`never: ${isTrue}`);
}

const isRunning = (pid) => {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
};

/** A tab with the editor of a recording. */
function tab(name) {
  const [message, disposed] = [fake.event(), fake.event()];
  const webview = { html: "", onDidReceiveMessage: message.on };
  const panel = { webview, viewColumn: 1, onDidDispose: disposed.on };
  const editor = new RecordingEditor();
  editor.resolveCustomEditor(editor.openCustomDocument(recording(name)), panel);
  const frame = () => /<iframe src="([^"]+)"/.exec(webview.html)?.[1];
  return { webview, frame, send: message.fire, close: disposed.fire };
}

test("a tab shows the page of its own server, which ends with the tab", async () => {
  const { webview, frame, close } = tab("step.snap");
  assert.match(webview.html, /Reading step\.snap/);
  await until(frame);
  const page = await (await fetch(frame())).text();
  assert.match(page, /<title>step\.snap<\/title>/);
  const pid = Number(/id="process">(\d+)/.exec(page)[1]);
  assert.ok(isRunning(pid));
  await close();
  await until(() => !isRunning(pid));
  await assert.rejects(fetch(frame()));
});

test("a tab that is closed while the recording is read leaves no server", async () => {
  const { frame, close } = tab("step.snap");
  await close();
  const server = new Server(recording("step.snap"));
  const address = assert.rejects(server.address(), /ended by SIGTERM/);
  server.dispose();
  await address;
  assert.ok(!isRunning(server.child.pid));
  assert.equal(frame(), undefined);
});

test("a server ends with the process that started it, even if that is killed", async () => {
  const started = `const { fake } = require(${JSON.stringify(path.join(__dirname, "vscode"))});
const { Server } = require(${JSON.stringify(path.join(__dirname, "../src/server"))});
fake.settings["highwater.path"] = ${JSON.stringify(STAND_IN)};
const server = new Server(fake.Uri.file("/recordings/step.snap"));
server.printed().then((page) => console.log(page.href));`;
  const host = spawn(process.execPath, ["-e", started], { stdio: ["ignore", "pipe", "inherit"] });
  const [page] = await once(host.stdout.setEncoding("utf8"), "data");
  const answers = () => fetch(page.trim()).then(({ ok }) => ok, () => false);
  assert.ok(await answers());
  host.kill("SIGKILL");
  await until(async () => !(await answers()));
});

test("the relay changes nothing but the rule against frames, and keeps the secret", async () => {
  const server = new Server(recording("step.snap"));
  const address = (await server.address()).toString();
  const page = await fetch(address, { headers: { Range: "bytes=5-" } });
  const policy = page.headers.get("content-security-policy");
  assert.ok(policy.includes("script-src 'self'") && policy.includes("base-uri 'none'"), policy);
  assert.ok(!policy.includes("frame-ancestors"), policy);
  assert.equal(page.headers.get("cross-origin-resource-policy"), "same-origin");
  assert.equal(page.headers.get("highwater-range"), "bytes=5-");
  assert.match(await (await fetch(`${address}page.js`)).text(), /addEventListener/);
  const head = await fetch(address, { method: "HEAD" });
  assert.deepEqual([head.status, await head.text()], [200, ""]);
  const guessed = new URL("/0123456789abcdef0123456789abcdef/", address);
  assert.equal((await fetch(guessed)).status, 404);
  server.dispose();
});

test("the address is the one that VS Code forwards to this machine, below the path of its proxy", async () => {
  fake.external = (uri) => fake.Uri.parse(`https://code.example.com/proxy/${new URL(uri.toString()).port}/`);
  const server = new Server(recording("step.snap"));
  const address = (await server.address()).toString();
  assert.match(address, /^https:\/\/code\.example\.com\/proxy\/\d+\/33e1e3d0cc69b0fdcf7530edca1edba7\/$/);
  server.dispose();
  const { webview, frame, close } = tab("step.snap");
  await until(frame);
  assert.match(webview.html, /frame-src https:\/\/code\.example\.com;/);
  await close();
});

test("a missing program is reported with what to do, and found at the next try", async () => {
  fake.settings["highwater.path"] = "/no/such/highwater";
  const { webview, frame, send, close } = tab("step.snap");
  await until(() => webview.html.includes("<pre>"));
  assert.match(
    webview.html,
    /cannot start \/no\/such\/highwater: there is no such file; install it \(pip install highwater-gpu\)/,
  );
  assert.match(webview.html, /or set highwater\.path/);
  await send({ kind: "settings" });
  assert.deepEqual(fake.of("executeCommand"), [["workbench.action.openSettings", "highwater.path"]]);
  fake.settings["highwater.path"] = STAND_IN;
  await send({ kind: "again" });
  await until(frame);
  await close();
});

test("without a setting, the program is looked for on the PATH", async () => {
  delete fake.settings["highwater.path"];
  const before = process.env.PATH;
  process.env.PATH = path.join(__dirname, "none");
  const { webview, close } = tab("step.snap");
  process.env.PATH = before;
  await until(() => webview.html.includes("<pre>"));
  assert.match(webview.html, /cannot start highwater: it is not on the PATH of VS Code/);
  await close();
});

test("a relative path starts at the folder of the workspace that has the recording", async () => {
  fake.folders = ["/other", "/recordings"];
  fake.settings["highwater.path"] = path.relative("/recordings", STAND_IN);
  const { frame, close } = tab("step.snap");
  await until(frame);
  await close();
});

test("the program's own error is shown, as text", async () => {
  const { webview, close } = tab("broken.snap");
  await until(() => webview.html.includes("<pre>"));
  assert.match(webview.html, /<pre>error: broken\.snap: not a recording<\/pre>/);
  await close();
  const named = tab("<script>.snap");
  assert.ok(!named.webview.html.includes("Reading <script>"));
  await named.close();
});

test("a server that ends early is reported", async () => {
  const { webview, frame, close } = tab("short.snap");
  await until(frame);
  await fetch(frame()).catch(() => {});
  await until(() => webview.html.includes("highwater serve ended with status 3"));
  await close();
});

test("only files on the disk are opened", async () => {
  const uri = fake.Uri.parse("https://example.com/step.snap");
  assert.throws(() => new Server(uri), /reads files on the disk only/);
});
