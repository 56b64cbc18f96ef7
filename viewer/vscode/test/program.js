// The built program, for tests over it: HIGHWATER_PROGRAM, else the debug build of this checkout.
"use strict";

const { spawnSync } = require("node:child_process");
const fs = require("node:fs");
const path = require("node:path");

const built = path.join(__dirname, "../../../target/debug/highwater");
const file = process.env.HIGHWATER_PROGRAM ?? built;

/** `missing` is why tests over it are skipped, false if they are not. */
const isRequired = process.env.HIGHWATER_REQUIRE_PAGE !== undefined;
const program = { path: file, missing: isRequired || fs.existsSync(file) ? false : `${file} is not built` };

/** Why tests over the app for browsers are skipped, false if they are not. */
function pageMissing() {
  if (program.missing || isRequired) return program.missing;
  const { stderr } = spawnSync(file, ["serve", "/no/such/file"], { encoding: "utf8" });
  return stderr.includes("does not include the browser app") && "the program has no app for browsers: cargo page";
}

module.exports = { pageMissing, program };
