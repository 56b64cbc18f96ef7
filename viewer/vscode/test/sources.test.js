// Recorded lines: the files that they are in, and their opening from the page.
"use strict";

const assert = require("node:assert/strict");
const fs = require("node:fs");
const os = require("node:os");
const path = require("node:path");
const { after, beforeEach, test } = require("node:test");
const { fake } = require("./vscode");
const { locate, openSource } = require("../src/sources");

const root = fs.realpathSync(fs.mkdtempSync(path.join(os.tmpdir(), "highwater-vscode-")));
after(() => fs.rmSync(root, { recursive: true }));
beforeEach(() => fake.reset());

/** Writes a file below the folder of the tests, and returns its path. */
function write(name) {
  const file = path.join(root, name);
  fs.mkdirSync(path.dirname(file), { recursive: true });
  fs.writeFileSync(file, "one\ntwo\nthree\n");
  return file;
}

const found = async (file) => (await locate(file))?.fsPath;

test("a file is found at its own path", async () => {
  const file = write("here/model.py");
  assert.equal(await found(file), file);
  assert.equal(await found(path.dirname(file)), undefined, "a folder");
});

test("a file of another machine is found in the workspace by the longest common end of its path", async () => {
  const [deep, shallow] = [write("project/nets/model.py"), write("project/model.py")];
  fake.folders = [path.join(root, "project")];
  assert.equal(await found("/gone/job17/project/nets/model.py"), deep);
  assert.equal(await found("C:\\gone\\project\\nets\\model.py"), deep);
  assert.equal(await found("/gone/elsewhere/model.py"), shallow);
  assert.equal(await found("/gone/other.py"), undefined);
});

test("paths that lead out of the workspace, to devices or to other machines are not opened", async () => {
  const outside = write("outside.py");
  fake.folders = [path.join(root, "project")];
  const names = [
    `/gone/../${path.basename(outside)}`,
    "/dev/null",
    "/proc/self/environ",
    "/./proc/self/environ",
    "/tmp/../proc/self/environ",
    "/./net/host/x.py",
    "//host/share/x.py",
    "\\\\host\\x.py",
    "x\0.py",
    "",
  ];
  for (const name of names) assert.equal(await found(name), undefined, name);
});

test("a click in the page opens the line beside it", async () => {
  const file = write("here/model.py");
  await openSource(file, 2, 1);
  await openSource(file, 3, 2);
  const opened = fake
    .of("showTextDocument")
    .map(([uri, { selection, viewColumn }]) => [uri.fsPath, selection.start.line, viewColumn]);
  assert.deepEqual(opened, [
    [file, 1, 2],
    [file, 2, 1],
  ]);
});

test("a file that is not here is named", async () => {
  await openSource("/gone/other.py", 2, 1);
  assert.match(
    fake.of("showWarningMessage")[0][0],
    /^\/gone\/other\.py: there is no such file on this machine or in the workspace/,
  );
});

test("messages of another form are passed over", async () => {
  const file = write("here/model.py");
  for (const [name, line] of [
    [7, 1],
    [file, "1"],
    [file, 0],
    [file, 1.5],
    [undefined, undefined],
  ])
    await openSource(name, line, 1);
  assert.deepEqual(fake.calls, []);
});
