// The page around the app: starts it, and does for it what only a page can do. The app's side is viewer/app/src/gui/web.rs.
"use strict";

// Without promise integration (JSPI) no job is suspended: each then runs in one piece, between two frames.
const engine = globalThis.WebAssembly ?? {};
const canSuspend = "Suspending" in engine;
if (!canSuspend) {
  engine.Suspending = function () {
    return () => undefined;
  };
  engine.promising = (call) => async (...values) => call(...values);
}

// The other script reads its own address, which it does not need, and which does not exist in a cell of a notebook.
Object.defineProperty(document, "currentScript", { value: null, configurable: true });

// Keys that the app uses. Browsers leave it those that they can; not Ctrl+W, Ctrl+T, Ctrl+N, Ctrl+Tab.
addEventListener(
  "keydown",
  (event) => {
    const isClipboard = !event.shiftKey && ["c", "x", "v"].includes(event.key.toLowerCase());
    const isTool = event.shiftKey && ["i", "j"].includes(event.key.toLowerCase());
    const isReload = event.key.toLowerCase() === "r";
    const hasControl = (event.ctrlKey || event.metaKey) && !isClipboard && !isTool && !isReload;
    if (event.key === "F1" || (hasControl && event.key !== "Control" && event.key !== "Meta")) event.preventDefault();
  },
  { capture: true },
);

var highwater = (() => {
  let page;
  let isInterrupted = false;

  // While jobs run, frames are at least this far apart, in milliseconds: where pages are drawn in software, a frame takes
  // as long as most jobs. For a while after the last input every frame is drawn, so that moving the view stays smooth.
  const frameDistance = 250;
  const smoothTime = 500;
  let areJobsRunning = false;
  let jobsBegun = 0;
  let lastFrame = 0;
  let lastInput = -smoothTime;
  const [nextFrame, cancelFrame] = [requestAnimationFrame.bind(window), cancelAnimationFrame.bind(window)];
  // Frames that were put off: the number that the caller knows, and the present one.
  const putOff = new Map();
  window.requestAnimationFrame = (draw) => {
    const drawIfDue = (time) => {
      const isEarly = time !== lastFrame && time < Math.max(lastFrame, jobsBegun) + frameDistance;
      if (areJobsRunning && isEarly && time > lastInput + smoothTime) return putOff.set(number, nextFrame(drawIfDue));
      putOff.delete(number);
      lastFrame = time;
      draw(time);
    };
    const number = nextFrame(drawIfDue);
    return number;
  };
  window.cancelAnimationFrame = (number) => {
    cancelFrame(putOff.get(number) ?? number);
    putOff.delete(number);
  };
  for (const kind of ["keydown", "keyup", "pointerdown", "pointermove", "pointerup", "wheel", "touchmove", "resize"]) {
    addEventListener(kind, (event) => (lastInput = event.timeStamp), { capture: true, passive: true });
  }

  // Lets the browser draw a frame and handle input before the code after `await turn()`.
  const waiting = [];
  const turns = new MessageChannel();
  turns.port1.onmessage = () => waiting.shift()();
  const turn = () =>
    new Promise((resolve) => {
      waiting.push(resolve);
      turns.port2.postMessage(0);
    });

  // An editor that shows the page in a frame makes itself known, and then opens lines of source code.
  let editor;
  addEventListener("message", ({ source, origin, data }) => {
    // A page without an origin, such as a file, cannot be addressed.
    const isEditor = source === parent && parent !== window && origin !== "null" && data?.highwater === "editor";
    if (isEditor) editor = { source, origin };
  });

  // Files that the app is reading, by number: outside of its memory, which only grows.
  const contents = new Map();
  let numbers = 0;
  const keep = (bytes) => {
    contents.set(++numbers, bytes);
    return numbers;
  };

  // Dropped files by name, each with what tells it from others of that name.
  const names = new Map();
  const nameOf = (file) => {
    const facts = `${file.size} ${file.lastModified}`;
    for (let number = 1; ; number++) {
      const name = number === 1 ? file.name : `${file.name} (${number})`;
      if ((names.get(name) ?? facts) === facts) {
        names.set(name, facts);
        return name;
      }
    }
  };

  const open = (name, buffer) => page.open(name, keep(new Uint8Array(buffer)), buffer.byteLength);

  const show = (text) => {
    const status = document.getElementById("status");
    status.className = "";
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

  // Recordings that are followed, by name: each with what tells it from one that was closed and opened again.
  const followed = new Map();

  // Fetches the data appended to a recording until its program has finished it. The connection may be interrupted.
  const follow = async ({ name, url }) => {
    let pause = 500;
    let file = "";
    const self = {};
    followed.set(name, self);
    const state = () => JSON.parse(page.state() ?? "{}");
    const isShown = () => state().recordings?.length > 0 || state().failures?.length > 0;
    const fail = (why) => {
      show("");
      page.fail(name, why);
    };
    if (!isShown()) show(`Waiting for the first events of ${name.split("/").pop()}…`);
    for (let have = 0; followed.get(name) === self; await new Promise((resolve) => setTimeout(resolve, pause))) {
      let response, bytes, why;
      try {
        const headers = { Range: `bytes=${have}-`, "Highwater-File": file };
        response = await fetch(url, { headers, cache: "no-store" });
        if (response.status === 206) bytes = new Uint8Array(await response.arrayBuffer());
        if (response.status >= 500) why = await response.text();
      } catch {
        pause = Math.min(2 * pause, 10000);
        if (pause > 2000) show(`No connection to the server; trying again. Otherwise: ${hint}`);
        continue;
      }
      if (followed.get(name) !== self) return;
      if (pause > 500 || isShown()) show("");
      if (response.status === 409) return fail("the file was replaced or truncated; reload the page to read it again");
      if (response.status === 404) return fail("the file was deleted");
      if (response.status >= 500) return fail(`the server cannot send it: ${why.trim()}`);
      file = response.headers.get("Highwater-File") ?? file;
      if (bytes) {
        have += bytes.length;
        page.grow(name, bytes);
      }
      if (response.headers.has("Highwater-Next")) {
        // A rotation goes on in another file, which begins with the live blocks.
        page.end(name);
        [have, file, pause] = [0, "", 500];
        continue;
      }
      if (response.headers.get("Highwater-Growing") === "no") {
        show("");
        return page.end(name);
      }
      pause = 500;
    }
  };

  // Shows the ranks of the server's folders as they change.
  const followRanks = async () => {
    let version = "";
    for (let pause = 2000; ; await new Promise((resolve) => setTimeout(resolve, pause))) {
      let response, ranks;
      try {
        response = await fetch(`ranks/${version}`, { cache: "no-store" });
        if (response.status === 200) ranks = await response.text();
      } catch {
        pause = Math.min(2 * pause, 10000);
        if (pause > 4000) show(`No connection to the server; trying again. Otherwise: ${hint}`);
        continue;
      }
      if (pause > 2000) show("");
      pause = 2000;
      if (ranks) {
        version = response.headers.get("Highwater-Version");
        try {
          page.show_ranks(ranks);
        } catch (why) {
          show(`The page cannot show the ranks as they are now; reload it. ${why}`);
          report(why);
        }
      }
    }
  };

  // Expands what an element of the page carries as base64 of gzip, and removes it.
  const unpack = async (id, type) => {
    const element = document.getElementById(id);
    const packed = await fetch(`data:application/octet-stream;base64,${element.textContent.trim()}`);
    element.remove();
    return new Response(packed.body.pipeThrough(new DecompressionStream("gzip")), { headers: { "Content-Type": type } });
  };

  // Recordings arrive, and the module is compiled, while the browser reads the other script.
  const recordings = JSON.parse(document.getElementById("recordings").textContent);
  const isWhole = document.getElementById("module") !== null;
  const compiled = async () => {
    const arrival = isWhole ? unpack("module", "application/wasm") : fetch("app.wasm");
    return WebAssembly.compileStreaming(arrival);
  };
  const module = compiled();
  const arriving = recordings.map(({ url, element, growing }) => {
    if (growing) return null;
    const arrival = element ? unpack(element, "application/octet-stream") : fetched(url);
    return arrival.then((response) => response.arrayBuffer());
  });
  // Whoever waits for them reports their failures.
  for (const promise of [module, ...arriving]) promise?.catch(() => {});

  const main = async () => {
    await wasm_bindgen({ module_or_path: await module });
    const canvas = document.getElementById("app");
    // The app finds this context. It smooths edges itself, and covers all of the canvas.
    canvas.getContext("webgl2", { alpha: false, antialias: false, depth: false });
    page = await wasm_bindgen.start(canvas);
    show("");
    const followLink = () => location.hash && page.follow_link(location.hash);
    addEventListener("hashchange", followLink);
    followLink();
    // All at once, so that the recording of the link is in front at the end.
    await Promise.allSettled(arriving);
    for (const [row, recording] of recordings.entries()) {
      names.set(recording.name, "");
      try {
        if (recording.growing) follow(recording);
        else open(recording.name, await arriving[row]);
      } catch (why) {
        page.fail(recording.name, why.message);
      }
    }
    // The app has them now.
    arriving.length = 0;
    if (document.body.dataset.ranks) followRanks();
    if (document.body.dataset.compare) page.compare();
  };

  addEventListener("DOMContentLoaded", () => main().catch(fail));

  // The app is called from many places: by its frames, events of the page, answers of the server.
  const report = (why) => engine.RuntimeError && why instanceof engine.RuntimeError && fail(why);
  addEventListener("error", ({ error }) => report(error));
  addEventListener("unhandledrejection", ({ reason }) => report(reason));

  const fail = (why) => {
    const panic = page && page.panic_message();
    if (page) show(`The app has stopped: ${panic || why}. Reload the page; if it happens again, please report it.`);
    else show(`The app cannot start in this browser: ${why}. It needs WebGL, and Chrome or Edge 137, Firefox 131, Safari 18.4 or newer.`);
  };

  return {
    // Runs the waiting jobs after the current frame.
    async call_run_jobs() {
      areJobsRunning = true;
      jobsBegun = performance.now();
      try {
        do await turn();
        while (await wasm_bindgen.run_jobs(false, !canSuspend));
      } catch (why) {
        fail(why);
      } finally {
        areJobsRunning = false;
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
        open(nameOf(file), await file.arrayBuffer());
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

    // Browsers have a clipboard only over https and on this computer; elsewhere a copied text field does the same.
    copy(text) {
      const field = document.createElement("textarea");
      field.value = text;
      // The app would put its own text in place of the field's.
      field.addEventListener("copy", (event) => event.stopPropagation());
      const focused = document.activeElement;
      document.body.append(field);
      field.select();
      if (!document.execCommand("copy")) console.warn("the browser refused to copy");
      field.remove();
      focused?.focus();
    },

    follow_served: (path) => void follow({ name: path, url: path.split("/").map(encodeURIComponent).join("/") }),

    leave_served: (path) => void followed.delete(path),

    has_editor: () => editor !== undefined,

    open_line(file, line) {
      editor?.source.postMessage({ highwater: "open", file, line }, editor.origin);
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

    // Returns the contents of the app as JSON, for programs that drive the page, such as tests.
    state: () => (page ? JSON.parse(page.state()) : null),

    // The table of a view that is shown, as CSV.
    table: (view) => page.table(view),
  };
})();
