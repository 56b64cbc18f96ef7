// The page around the app: starts it, and does for it what only a page can do. The app's side is viewer/app/src/gui/web.rs.
"use strict";

// Without promise integration (JSPI) no job is suspended: each then runs in one piece, between two frames.
const canSuspend = "Suspending" in WebAssembly;
if (!canSuspend) {
  WebAssembly.Suspending = function () {
    return () => undefined;
  };
  WebAssembly.promising = (call) => async (...values) => call(...values);
}

const highwater = (() => {
  let page;
  let isInterrupted = false;

  // Lets the browser draw a frame and handle input before what comes after `await turn()`.
  const waiting = [];
  const turns = new MessageChannel();
  turns.port1.onmessage = () => waiting.shift()();
  const turn = () =>
    new Promise((resolve) => {
      waiting.push(resolve);
      turns.port2.postMessage(0);
    });

  // Files that the app is reading, by number: outside of its memory, which only grows.
  const contents = new Map();
  let numbers = 0;
  const keep = (bytes) => {
    contents.set(++numbers, bytes);
    return numbers;
  };

  const open = (name, buffer) => page.open(name, keep(new Uint8Array(buffer)), buffer.byteLength);

  const show = (text) => {
    const status = document.getElementById("status");
    status.textContent = text;
    status.hidden = text === "";
  };

  const hint = "is highwater serve still running, and the ssh connection?";

  const fetched = async (url) => {
    const response = await fetch(url, { cache: "no-store" }).catch((why) => {
      throw new Error(`cannot fetch the recording: ${why.message}; ${hint}`);
    });
    if (!response.ok) throw new Error(`cannot fetch the recording: the server answered ${response.status}`);
    return response;
  };

  // Fetches what is appended to a recording until its program has finished it. The connection may be interrupted.
  const follow = async ({ name, url }) => {
    let pause = 500;
    for (let have = 0; ; await new Promise((resolve) => setTimeout(resolve, pause))) {
      try {
        const response = await fetch(url, { headers: { Range: `bytes=${have}-` }, cache: "no-store" });
        if (response.status === 409) {
          return page.fail(name, "the file was replaced or truncated; reload the page to read it again");
        }
        if (response.ok) {
          const bytes = new Uint8Array(await response.arrayBuffer());
          have += bytes.length;
          page.grow(name, bytes);
        }
        if (response.headers.get("Highwater-Growing") === "no") return page.end(name);
        pause = 500;
      } catch {
        pause = Math.min(2 * pause, 10000);
      }
    }
  };

  // Expands what an element of the page carries as base64 of gzip, and removes it.
  const unpack = async (id) => {
    const element = document.getElementById(id);
    const packed = await fetch(`data:application/octet-stream;base64,${element.textContent.trim()}`);
    element.remove();
    return new Response(packed.body.pipeThrough(new DecompressionStream("gzip")));
  };

  const main = async () => {
    const recordings = JSON.parse(document.getElementById("recordings").textContent);
    const isWhole = document.getElementById("module") !== null;
    // Recordings arrive while the app is compiled.
    const arriving = recordings.map(({ url, element, growing }) => {
      if (growing) return null;
      const arrival = element ? unpack(element) : fetched(url);
      const buffer = arrival.then((response) => response.arrayBuffer());
      buffer.catch(() => {});
      return buffer;
    });
    const module = isWhole ? unpack("module").then((response) => response.arrayBuffer()) : fetch("app.wasm");
    await wasm_bindgen({ module_or_path: module });
    page = await wasm_bindgen.start(document.getElementById("app"));
    show("");
    const followLink = () => location.hash && page.follow_link(location.hash);
    addEventListener("hashchange", followLink);
    followLink();
    for (const [row, recording] of recordings.entries()) {
      try {
        if (recording.growing) follow(recording);
        else open(recording.name, await arriving[row]);
      } catch (why) {
        page.fail(recording.name, why.message);
      }
    }
    if (document.body.dataset.compare) page.compare();
  };

  const fail = (why) => {
    const panic = page && page.panic_message();
    if (page) show(`The app has stopped: ${panic || why}. Reload the page; if it happens again, please report it.`);
    else show(`The app cannot start in this browser: ${why}. It needs WebGL, and Chrome or Edge 137, Firefox 131, Safari 18.4 or newer.`);
  };

  return {
    // Runs the waiting jobs after the current frame.
    async call_run_jobs() {
      try {
        do await turn();
        while (await wasm_bindgen.run_jobs(false, !canSuspend));
      } catch (why) {
        fail(why);
      }
    },

    // Suspends a job until the page has had its turn. Waiting pictures are drawn first, each of them to its end: jobs
    // are resumed in the reverse of the order in which they were suspended.
    async next_turn() {
      await turn();
      if (isInterrupted) return;
      isInterrupted = true;
      try {
        while (wasm_bindgen.has_waiting_picture()) {
          await wasm_bindgen.run_jobs(true, false);
          await turn();
        }
      } finally {
        isInterrupted = false;
      }
    },

    read_content(number, offset, out) {
      const part = contents.get(number).subarray(offset, offset + out.length);
      out.set(part);
      return part.length;
    },

    drop_content(number) {
      contents.delete(number);
    },

    async open_file(file) {
      try {
        open(file.name, await file.arrayBuffer());
      } catch (why) {
        page.fail(file.name, `the browser cannot read it: ${why.message}`);
      }
    },

    choose_files() {
      const input = document.createElement("input");
      input.type = "file";
      input.multiple = true;
      input.onchange = () => [...input.files].forEach(highwater.open_file);
      input.oncancel = () => page.choose_none();
      input.click();
    },

    show_fragment(text) {
      try {
        history.replaceState(null, "", `#${text}`);
      } catch {
        // A page within a notebook has no address.
      }
    },

    download(name, bytes) {
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([bytes]));
      link.download = name;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 60000);
    },

    // What the app shows, as JSON: for programs that drive the page, as tests do.
    state: () => (page ? JSON.parse(page.state()) : null),

    // The table of a view that is shown, as CSV.
    table: (view) => page.table(view),

    start() {
      main().catch(fail);
    },
  };
})();
