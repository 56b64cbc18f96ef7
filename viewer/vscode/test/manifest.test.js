// The manifest: it names what the extension registers, and the package has what the extension loads.
"use strict";

const assert = require("node:assert/strict");
const fs = require("node:fs");
const path = require("node:path");
const { test } = require("node:test");
const { fake } = require("./vscode");
const manifest = require("../package.json");
const { activate } = require("../src/extension");

const root = path.join(__dirname, "..");

test("every command and editor of the manifest is registered, and no other", () => {
  const subscriptions = [];
  activate({ subscriptions });
  const { commands, customEditors, menus } = manifest.contributes;
  const named = commands.map(({ command }) => command);
  assert.deepEqual(Object.keys(fake.commands).sort(), [...named].sort());
  assert.deepEqual(Object.keys(fake.editors).sort(), customEditors.map(({ viewType }) => viewType).sort());
  const inMenus = Object.values(menus).flat();
  assert.ok(inMenus.every(({ command }) => named.includes(command)));
  // What VS Code disposes of when the extension ends.
  assert.equal(subscriptions.length, 1 + named.length + customEditors.length);
  assert.ok(subscriptions.every(({ dispose }) => typeof dispose === "function"));
});

test("nothing but the extension's own files is loaded at run time", () => {
  for (const name of fs.readdirSync(path.join(root, "src"))) {
    const text = fs.readFileSync(path.join(root, "src", name), "utf8");
    for (const [, loaded] of text.matchAll(/require\("([^"]+)"\)/g)) {
      const isOwn = loaded.startsWith("./") && fs.existsSync(path.join(root, "src", `${loaded}.js`));
      assert.ok(isOwn || loaded.startsWith("node:") || loaded === "vscode", `${name}: ${loaded}`);
    }
  }
  assert.equal(manifest.dependencies, undefined);
});
