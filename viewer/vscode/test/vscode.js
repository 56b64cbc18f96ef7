// A small fake of the module `vscode`: what the extension calls, recorded, and what the user answers.
"use strict";

const Module = require("node:module");
const path = require("node:path");

class Uri {
  constructor({ scheme, authority = "", path = "" }) {
    Object.assign(this, { scheme, authority, path });
  }
  static file(name) {
    return new Uri({ scheme: "file", path: name });
  }
  static parse(text) {
    const { protocol, host, pathname } = new URL(text);
    return new Uri({ scheme: protocol.slice(0, -1), authority: host, path: pathname });
  }
  get fsPath() {
    return this.path;
  }
  with(change) {
    return new Uri({ ...this, ...change });
  }
  toString() {
    return `${this.scheme}://${this.authority}${this.path}`;
  }
}

class Range {
  constructor(...values) {
    const isOfPositions = values.length === 2;
    const [startLine, startCharacter, endLine, endCharacter] = isOfPositions
      ? [values[0].line, values[0].character, values[1].line, values[1].character]
      : values;
    this.start = { line: startLine, character: startCharacter };
    this.end = { line: endLine, character: endCharacter };
  }
}

class MarkdownString {
  value = "";
  appendText(text) {
    this.value += text;
  }
}

class TabInputCustom {
  constructor(uri, viewType) {
    Object.assign(this, { uri, viewType });
  }
}

/** A source of events: `on` listens, `fire` tells the listeners. */
function event() {
  const listeners = new Set();
  const on = (listener) => {
    listeners.add(listener);
    return { dispose: () => listeners.delete(listener) };
  };
  return { on, fire: (value) => Promise.all([...listeners].map((listener) => listener(value))) };
}

const visible = event();

/** What a test sets and reads. */
const fake = {
  Uri,
  TabInputCustom,
  event,
  settings: {},
  folders: [],
  /** What stands between this machine and the user's: VS Code's own answer without a remote machine. */
  external: (uri) => uri,
  commands: {},
  editors: {},
  calls: [],
  /** What the user chooses, by the function that asks. */
  answers: {},
  token: { isCancellationRequested: false, onCancellationRequested: () => ({ dispose() {} }) },
  reset() {
    Object.assign(fake, { settings: {}, folders: [], external: (uri) => uri, calls: [], answers: {}, editors: {} });
    fake.token = { isCancellationRequested: false, onCancellationRequested: () => ({ dispose() {} }) };
    Object.assign(vscode.window, { visibleTextEditors: [], tabGroups: { activeTabGroup: {} } });
  },
  /** The arguments of each call of a function. */
  of: (name) => fake.calls.filter(([called]) => called === name).map(([, ...words]) => words),
  async showEditors(editors) {
    vscode.window.visibleTextEditors = editors;
    await visible.fire(editors);
  },
};

/** A function that is recorded, and returns the user's answer. */
const asked =
  (name) =>
  async (...words) => {
    fake.calls.push([name, ...words]);
    return fake.answers[name]?.(...words);
  };

const vscode = {
  Uri,
  Range,
  MarkdownString,
  TabInputCustom,
  CancellationError: class extends Error {},
  ThemeColor: class {},
  DecorationRangeBehavior: { ClosedOpen: 1 },
  ProgressLocation: { Notification: 15 },
  ViewColumn: { One: 1, Two: 2 },
  env: { asExternalUri: async (uri) => fake.external(uri) },
  workspace: {
    getConfiguration: (section) => ({ get: (name, other) => fake.settings[`${section}.${name}`] ?? other }),
    get workspaceFolders() {
      return fake.folders.map((name) => ({ uri: Uri.file(name) }));
    },
    getWorkspaceFolder: (uri) => {
      const folder = fake.folders.find((name) => uri.path.startsWith(`${name}${path.sep}`));
      return folder && { uri: Uri.file(folder) };
    },
  },
  window: {
    visibleTextEditors: [],
    tabGroups: { activeTabGroup: {} },
    createTextEditorDecorationType: () => ({ dispose() {} }),
    onDidChangeVisibleTextEditors: visible.on,
    registerCustomEditorProvider: (name, provider) => {
      fake.editors[name] = provider;
      return { dispose() {} };
    },
    withProgress: (options, work) => work({}, fake.token),
    showOpenDialog: asked("showOpenDialog"),
    showQuickPick: asked("showQuickPick"),
    showTextDocument: asked("showTextDocument"),
    showInformationMessage: asked("showInformationMessage"),
    showWarningMessage: asked("showWarningMessage"),
    showErrorMessage: asked("showErrorMessage"),
  },
  commands: {
    registerCommand: (name, call) => {
      fake.commands[name] = call;
      return { dispose() {} };
    },
    executeCommand: asked("executeCommand"),
  },
};

const load = Module._load;
Module._load = function (name, ...rest) {
  return name === "vscode" ? vscode : load.call(this, name, ...rest);
};

module.exports = { fake };
