// Memory at the peak by line: what the program answers, the list of lines, and what stands beside lines of code.
"use strict";

const assert = require("node:assert/strict");
const { execFileSync } = require("node:child_process");
const fs = require("node:fs");
const os = require("node:os");
const path = require("node:path");
const { after, beforeEach, test } = require("node:test");
const { fake } = require("./vscode");
const { program } = require("./program");
const { activate } = require("../src/extension");
const { formatBytes, parseFrame, parsePeak } = require("../src/peak");

const root = fs.realpathSync(fs.mkdtempSync(path.join(os.tmpdir(), "highwater-vscode-")));
after(() => fs.rmSync(root, { recursive: true }));
beforeEach(() => fake.reset());
activate({ subscriptions: [] });

test("sizes are written as the program writes them", () => {
  const sizes = [0, 512, 1024, 1536, 2 ** 20, 6_087_937_568, 24 * 2 ** 30, 1023.999 * 2 ** 20, 3 * 2 ** 40];
  const texts = ["0 B", "512 B", "1 KiB", "1.50 KiB", "1 MiB", "5.67 GiB", "24 GiB", "1024.00 MiB", "3 TiB"];
  assert.deepEqual(sizes.map(formatBytes), texts);
});

test("a frame is read as path, line and function", () => {
  assert.deepEqual(parseFrame("/a b/model.py:184 forward"), { file: "/a b/model.py", line: 184, name: "forward" });
  assert.deepEqual(parseFrame("C:\\nets\\model.py:7"), { file: "C:\\nets\\model.py", line: 7, name: "" });
  assert.deepEqual(parseFrame("/x/a:3:12 f"), { file: "/x/a:3", line: 12, name: "f" });
  for (const text of ["(none)", "malloc (libc.so)", "model.py:0 f", "std::vector"])
    assert.equal(parseFrame(text), undefined);
});

test("functions of one line are added up, and the largest line is first", () => {
  const groups = [
    { key: "/a.py:1 f", bytes: 100, blocks: 1 },
    { key: "(none)", bytes: 80, blocks: 3 },
    { key: "/a.py:2 g", bytes: 70, blocks: 1 },
    { key: "/a.py:2 <lambda>", bytes: 60, blocks: 2 },
  ];
  const answer = {
    device: 1,
    metric: "requested",
    bytes: 310,
    event: 2684,
    time_us: 0,
    step: null,
    phase: "forward",
    groups,
  };
  const { text, lines, recordedMs } = parsePeak(JSON.stringify(answer));
  assert.equal(text, "310 B requested at the peak of device 1, event 2,684, forward");
  assert.equal(recordedMs, undefined);
  const shown = lines.map(({ line, bytes, blocks, functions }) => [line, bytes, blocks, functions]);
  assert.deepEqual(shown, [
    [2, 130, 3, ["g", "<lambda>"]],
    [1, 100, 1, ["f"]],
  ]);
});

/** A recording whose allocations are at lines of a program in `root`, as text that the program converts. */
const SOURCE = ["def forward():", "    a = zeros(1 << 20)", "    b = zeros(512)", "    return a, b", ""].join("\n");

/** Writes a snapshot as PyTorch's JSON, with two blocks that are live at the peak. */
function snapshot(file) {
  const frame = (line) => ({ filename: file, line, name: "forward" });
  const event = (action, addr, size, line) => ({ action, addr, size, stream: 0, frames: [frame(line)] });
  const trace = [event("alloc", 4096, 1 << 20, 2), event("alloc", 4096 + (1 << 20), 512, 3)];
  const blocks = trace.map(({ size, addr, frames }) => ({
    address: addr,
    size,
    requested_size: size,
    state: "active_allocated",
    frames,
  }));
  blocks.push({
    address: 4096 + (1 << 20) + 512,
    size: (1 << 20) - 512,
    requested_size: 0,
    state: "inactive",
    frames: [],
  });
  const segment = {
    device: 0,
    address: 4096,
    total_size: 2 << 20,
    stream: 0,
    segment_type: "large",
    allocated_size: (1 << 20) + 512,
    active_size: (1 << 20) + 512,
    blocks,
  };
  return JSON.stringify({ segments: [segment], device_traces: [trace] });
}

/** An editor of a file, and what was last drawn in it. */
function editor(file) {
  const rows = fs.readFileSync(file, "utf8").split("\n");
  const lineAt = (line) => ({ range: { end: { line, character: rows[line].length } } });
  const shown = { drawn: undefined, document: { uri: fake.Uri.file(file), lineCount: rows.length, lineAt } };
  shown.setDecorations = (_, decorations) => (shown.drawn = decorations);
  return shown;
}

const texts = ({ drawn }) =>
  drawn.map(({ range, renderOptions }) => [range.start.line, renderOptions.after.contentText]);

test(
  "the program's answer stands beside the lines, in editors that are open and opened, until it is hidden",
  { skip: program.missing },
  async () => {
    fake.settings["highwater.path"] = program.path;
    const [source, file] = [path.join(root, "a.py"), path.join(root, "step.json")];
    fs.writeFileSync(source, SOURCE);
    fs.writeFileSync(file, snapshot(source));
    const [open, other] = [editor(source), editor(file)];
    await fake.showEditors([open, other]);
    fake.answers.showQuickPick = (items) => items[1];
    await fake.commands["highwater.peak"](fake.Uri.file(file));
    assert.deepEqual(fake.of("showErrorMessage"), []);

    const [items, { title }] = fake.of("showQuickPick")[0];
    assert.match(title, /^1\.00 MiB requested at the peak of device 0/);
    assert.deepEqual(
      items.map(({ label, description }) => [label, description]),
      [
        ["1 MiB", "a.py:2 forward"],
        ["512 B", "a.py:3 forward"],
      ],
    );
    const [uri, { selection }] = fake.of("showTextDocument")[0];
    assert.deepEqual([uri.fsPath, selection.start.line], [source, 2]);

    assert.deepEqual(texts(open), [
      [1, "1 MiB at the peak"],
      [2, "512 B at the peak"],
    ]);
    assert.match(open.drawn[1].hoverMessage.value, /^512 B in 1 block, 0\.0 % of 1\.00 MiB requested/);
    assert.deepEqual(other.drawn, []);
    const late = editor(source);
    await fake.showEditors([late]);
    assert.equal(texts(late).length, 2);
    await fake.commands["highwater.hide"]();
    assert.deepEqual(late.drawn, []);
    assert.deepEqual(
      fake.of("executeCommand").map(([, name, value]) => [name, value]),
      [
        ["highwater.isPeakShown", true],
        ["highwater.isPeakShown", false],
      ],
    );
  },
);

test(
  "the recording in front is taken, and a file that is none is reported in the program's words",
  { skip: program.missing },
  async () => {
    fake.settings["highwater.path"] = program.path;
    const file = path.join(root, "none.snap");
    fs.writeFileSync(file, "not a recording");
    const { window } = require("vscode");
    window.tabGroups = {
      activeTabGroup: { activeTab: { input: new fake.TabInputCustom(fake.Uri.file(file), "highwater.recording") } },
    };
    await fake.commands["highwater.peak"]();
    assert.match(fake.of("showErrorMessage")[0][0], /none\.snap/);
  },
);

test("the same answer as on the command line, to the byte", { skip: program.missing }, async () => {
  fake.settings["highwater.path"] = program.path;
  const file = path.join(root, "mlp.snap");
  execFileSync(program.path, ["record", "mlp", "--out", file], { stdio: "ignore" });
  const answer = JSON.parse(
    execFileSync(program.path, ["peak", file, "--by", "frame", "--json"], { encoding: "utf8" }),
  );
  await fake.commands["highwater.peak"](fake.Uri.file(file));
  const [items] = fake.of("showQuickPick")[0];
  assert.equal(
    items.reduce((sum, { line }) => sum + line.bytes, 0),
    answer.bytes,
    "each block has a line",
  );
  assert.match(items[0].detail, /\.rs$/);
});

test("a missing program is reported with its remedy", async () => {
  fake.settings["highwater.path"] = "/no/such/highwater";
  fake.answers.showErrorMessage = (_, settings) => settings;
  await fake.commands["highwater.peak"](fake.Uri.file("/recordings/step.snap"));
  assert.match(fake.of("showErrorMessage")[0][0], /pip install highwater-gpu/);
  assert.deepEqual(fake.of("executeCommand"), [["workbench.action.openSettings", "highwater.path"]]);
});

test("reading can be cancelled, which is no error", { skip: program.missing }, async () => {
  fake.settings["highwater.path"] = program.path;
  fake.token = {
    isCancellationRequested: true,
    onCancellationRequested: (stop) => (queueMicrotask(stop), { dispose() {} }),
  };
  await fake.commands["highwater.peak"](fake.Uri.file("/dev/zero"));
  assert.deepEqual(fake.of("showErrorMessage"), []);
  assert.deepEqual(fake.of("showQuickPick"), []);
});

test("a recording is chosen, and opened in the editor", async () => {
  const uri = fake.Uri.file("/recordings/step.json");
  fake.answers.showOpenDialog = () => [uri];
  await fake.commands["highwater.open"]();
  assert.deepEqual(fake.of("executeCommand"), [["vscode.openWith", uri, "highwater.recording"]]);
  fake.answers.showOpenDialog = () => undefined;
  await fake.commands["highwater.open"]();
  assert.equal(fake.of("executeCommand").length, 1);
});
