//! Measures the time of the app's frames while the user points, drags and zooms, and the time of opening.
//!
//! `cargo bench -p highwater --no-default-features --features gui --bench frame`. `HIGHWATER_BENCH_EVENTS` sets how
//! many events, several numbers separated by commas; 100,000, 1,140,000 and 10,000,000 if unset. `HIGHWATER_BENCH_FILE`
//! names a recording to take instead; of one that is too long to be held in memory, the part around the peak is shown.
//! No window is opened: the app draws into a surface of 1440 x 900 points, and its shapes are turned into triangles as
//! for a graphics card. Pictures are painted by other threads meanwhile.

#[path = "../../../snapshots/benches/generated/mod.rs"]
mod generated;
mod thread_time;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use eframe::egui::{
    self, Event, Modifiers, MouseWheelSource, MouseWheelUnit, PointerButton, Pos2, RawInput, Rect, TouchPhase, Vec2,
    vec2,
};
use highwater_analysis::Metric;
use highwater_app::command::Command;
use highwater_app::gui::{App, Computed as _, Settings};
use highwater_app::session::Recording;
use highwater_app::session::run::{MAX_RESIDENT_EVENTS, Run};
use highwater_pytorch::open::open_file;
use highwater_snapshots::format::{Progress, Windows, read_bytes};

use thread_time::spent;

/// The window, in points.
const SIZE: Vec2 = vec2(1440.0, 900.0);
/// Frames of one gesture.
const FRAMES: usize = 120;

/// The app without a window.
struct Bench {
    ctx: egui::Context,
    app: App,
    frames: u64,
}

/// The durations of the frames of a gesture, in order.
struct Figures {
    /// CPU time of the app's thread.
    cpu: Vec<Duration>,
    /// Wall-clock time, which other threads and programs lengthen.
    clock: Vec<Duration>,
}

impl Bench {
    fn frame(&mut self, events: Vec<Event>) {
        self.frames += 1;
        let input = RawInput {
            screen_rect: Some(Rect::from_min_size(Pos2::ZERO, SIZE)),
            time: Some(self.frames as f64 / 60.0),
            events,
            ..RawInput::default()
        };
        let app = &mut self.app;
        let output = self.ctx.run_ui(input, |ui| app.app_ui(ui));
        std::hint::black_box(self.ctx.tessellate(output.shapes, 1.0));
    }

    /// Draws until all background work is done.
    fn settle(&mut self) {
        for _ in 0..20 {
            self.frame(Vec::new());
            match self.app.current_mut() {
                Some(file) if file.is_busy() => file.wait(),
                _ => {}
            }
        }
    }

    fn run(&mut self, command: Command) {
        let ctx = self.ctx.clone();
        self.app.run(&ctx, command);
        self.settle();
    }

    /// Draws the frames of a gesture, each with the events that `events` gives for its number.
    fn gesture(&mut self, events: impl Fn(usize) -> Vec<Event>) -> Figures {
        let frames = (0..FRAMES).map(|frame| {
            let events = events(frame);
            let (before, started) = (spent(), Instant::now());
            self.frame(events);
            (spent().saturating_sub(before), started.elapsed())
        });
        let (mut cpu, mut clock): (Vec<Duration>, Vec<Duration>) = frames.unzip();
        cpu.sort_unstable();
        clock.sort_unstable();
        self.settle();
        Figures { cpu, clock }
    }
}

/// A place in the plot, `share` of the way across.
fn place(share: f32) -> Pos2 {
    Pos2::new(120.0 + 850.0 * share, 420.0)
}

fn button(pos: Pos2, pressed: bool) -> Event {
    Event::PointerButton { pos, button: PointerButton::Primary, pressed, modifiers: Modifiers::NONE }
}

fn wheel(points: f32) -> Event {
    let (unit, delta) = (MouseWheelUnit::Point, vec2(0.0, points));
    Event::MouseWheel {
        unit,
        delta,
        phase: TouchPhase::Move,
        source: MouseWheelSource::Unknown,
        modifiers: Modifiers::NONE,
    }
}

fn report(what: &str, figures: &Figures) {
    let at = |times: &[Duration], share: f64| ms(times[((times.len() - 1) as f64 * share) as usize]);
    let cpu = [0.5, 0.99, 1.0].map(|share| format!("{:>7.2} ms", at(&figures.cpu, share))).join(" ");
    say(&format!("  {what:<32} {cpu}     {:>7.2} ms", at(&figures.clock, 0.5)));
}

fn say(line: &str) {
    // Nobody may be reading.
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// Opens the part around the peak of a recording that is too long to be held in memory, as the app does.
fn open_part(file: &Path) -> Option<Recording> {
    let source = std::fs::File::open(file).ok()?;
    let mut watch = |_: Progress| std::ops::ControlFlow::Continue(());
    let windows = Windows::open(Arc::new(source), &mut watch).ok()?;
    if windows.events() <= MAX_RESIDENT_EVENTS {
        return None;
    }
    let device = windows.main_device();
    let run = Arc::new(Run::new(windows, file).ok()?);
    let peak = run.peak_event(device, Metric::Requested).ok()?;
    Recording::part(&run, run.around(peak)).ok()
}

fn measure(name: &str, recording: impl FnOnce() -> Recording) {
    let ctx = egui::Context::default();
    let mut bench = Bench { ctx, app: App::new(Settings::default()), frames: 0 };
    bench.frame(Vec::new());
    let started = Instant::now();
    bench.app.open_recording(recording());
    let indexed = started.elapsed();
    bench.settle();
    say(&format!("{name}: indices {:.0} ms, picture {:.0} ms", ms(indexed), ms(started.elapsed())));
    say("                                    CPU: median       99 %       most   clock: median");
    for view in [None, Some(Command::ShowSegments), Some(Command::ShowEvents)] {
        if let Some(view) = view {
            bench.run(view);
            say(&format!("  with: {}", view.name()));
        }
        bench.run(Command::FitAll);
        report("at rest", &bench.gesture(|_| Vec::new()));
        let sweep = |frame: usize| vec![Event::PointerMoved(place(frame as f32 / FRAMES as f32))];
        report("pointing across the whole", &bench.gesture(sweep));
        let zoom_in = |frame: usize| if frame == 0 { sweep(FRAMES / 3) } else { vec![wheel(24.0)] };
        report("zooming in, whole to events", &bench.gesture(zoom_in));
        let drag = |frame: usize| match frame {
            0 => vec![Event::PointerMoved(place(0.5)), button(place(0.5), true)],
            last if last == FRAMES - 1 => vec![button(place(0.2), false)],
            frame => vec![Event::PointerMoved(place(0.5 - 0.3 * frame as f32 / FRAMES as f32))],
        };
        report("dragging, deep", &bench.gesture(drag));
        report("zooming out, events to whole", &bench.gesture(|_| vec![wheel(-24.0)]));
        bench.run(Command::GoToPeak);
        report("dragging at the peak", &bench.gesture(drag));
    }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn main() {
    if let Some(file) = std::env::var_os("HIGHWATER_BENCH_FILE").map(PathBuf::from) {
        let name = file.display().to_string();
        if let Some(part) = open_part(&file) {
            return measure(&name, || part);
        }
        let mut listener = |_: Progress| std::ops::ControlFlow::Continue(());
        match open_file(&file, &mut listener) {
            Ok(opened) => measure(&name, || Recording::new(&name, None, opened.trace)),
            Err(why) => say(&format!("{}: {why}", file.display())),
        }
        return;
    }
    for count in generated::numbers("HIGHWATER_BENCH_EVENTS", &[100_000, 1_140_000, 10_000_000]) {
        let bytes = generated::write(&generated::training(count));
        match read_bytes(&bytes) {
            Ok(trace) => measure(&format!("{count} events"), || Recording::new("generated", None, trace)),
            Err(why) => say(&format!("{count} events: {why}")),
        }
    }
}
