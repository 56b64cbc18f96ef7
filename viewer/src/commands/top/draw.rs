//! Renders the screen of `highwater top` for a terminal of any size.

use std::time::Duration;

use highwater_analysis::{GroupKey, Metric};
use highwater_app::figures::moment::total_name;
use highwater_snapshots::line_text::shorten_line;
use highwater_snapshots::shown::{MAX_IN_TABLE, printable, shown};
use highwater_snapshots::stage::Stage;
use highwater_snapshots::{count_of, format_bytes, format_count, format_duration};
use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Cell, Paragraph, Row, Sparkline, Table};

use super::answer::{Answer, Detail, GroupRow, Groups, RecordingLine};
use super::keys::HELP;
use super::watched::State;

/// Width of the scale next to the curve, and of a size in a table, in columns.
const SCALE: u16 = 11;

/// Width of the terminal from which categories and the selected groups are side by side.
const WIDE: u16 = 120;

const SMALL_CURVE: usize = 12;

/// The value to which the peak is scaled in the curve.
const PEAK_HEIGHT: u64 = 1 << 20;

const DIM: Style = Style::new().add_modifier(Modifier::DIM);
const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);

/// Draws the answer.
pub fn draw(answer: &Answer, frame: &mut Frame<'_>) {
    let area = frame.area();
    let Some(detail) = &answer.detail else {
        let text = "No recording yet; it appears here once a program writes one.";
        frame.render_widget(Paragraph::new(text), area);
        return;
    };
    let count = u16::try_from(answer.recordings.len()).unwrap_or(u16::MAX);
    let listed = if count > 1 { count.saturating_add(1) } else { 0 };
    // Three eighths for the recordings, so that the ranks of a machine with eight GPUs fit into 24 lines; of the rest a
    // third for the curve, and the others for the tables.
    let listed = listed.min((area.height.saturating_mul(3) / 8).max(4));
    let notes = (detail.notes.len() as u16).min(2);
    let curve = ((area.height.saturating_sub(listed)) / 3).clamp(3, 18);
    let rows = [
        Constraint::Length(2),
        Constraint::Length(notes),
        Constraint::Length(3),
        Constraint::Length(curve),
        Constraint::Length(listed),
        Constraint::Min(0),
        Constraint::Length(1),
    ];
    let [head, note, totals, chart, list, tables, keys] = Layout::vertical(rows).areas(area);
    frame.render_widget(Paragraph::new(head_lines(detail)), head);
    frame.render_widget(Paragraph::new(note_lines(detail, usize::from(notes), note.width)), note);
    draw_totals(detail, answer.choice.metric, totals, frame);
    draw_curve(detail, answer.choice.metric, chart, frame);
    if listed > 0 {
        draw_recordings(answer, list, frame);
    }
    draw_tables(detail, answer, tables, frame);
    frame.render_widget(Paragraph::new(key_line()), keys);
}

fn head_lines(detail: &Detail) -> Vec<Line<'static>> {
    let mut first = vec![Span::styled(format!("highwater top  {}", printable(&detail.name)), BOLD)];
    first.extend((!detail.program.is_empty()).then(|| Span::raw(format!("  {}", shown(&detail.program, 60)))));
    let mut second = vec![state_span(&detail.state)];
    second.push(Span::raw(format!("  {}", count_of(detail.events, "event"))));
    if detail.duration_ns > 0 {
        second.push(Span::raw(format!("  {}", format_duration(detail.duration_ns))));
    }
    if detail.has_stages {
        second.push(Span::raw(format!("  {}", stage_text(&detail.stage))));
    }
    if !detail.device_name.is_empty() || detail.device_count > 1 {
        let count = if detail.device_count > 1 { format!(" of {}", detail.device_count) } else { String::new() };
        second.push(Span::raw(format!("  device {}{count} {}", detail.device.0, shown(&detail.device_name, 40))));
    }
    vec![Line::from(first), Line::from(second)]
}

fn state_span(state: &State) -> Span<'static> {
    match state {
        State::Growing => Span::styled(state_text(state), Style::new().fg(Color::Green)),
        State::Failed(_) => Span::styled(state_text(state), Style::new().fg(Color::Red)),
        State::Waiting | State::Complete | State::Saved(_) | State::Idle(_) => {
            Span::styled(state_text(state), Style::new().fg(Color::Yellow))
        }
    }
}

pub(crate) fn state_text(state: &State) -> String {
    match state {
        State::Waiting => "no events yet".to_owned(),
        State::Growing => "recording".to_owned(),
        State::Complete => "complete".to_owned(),
        State::Saved(age) => format!("saved {} ago", age_text(*age)),
        State::Idle(age) => format!("unfinished, idle {}", age_text(*age)),
        State::Failed(_) => "cannot be read".to_owned(),
    }
}

fn age_text(age: Duration) -> String {
    match age.as_secs() {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min", seconds / 60),
        seconds => format_duration(seconds.saturating_mul(1_000_000_000)),
    }
}

pub(crate) fn stage_text(stage: &Stage) -> String {
    stage.step.map_or_else(|| stage.phase.name().to_owned(), |step| format!("step {step}, {}", stage.phase.name()))
}

fn note_lines(detail: &Detail, rows: usize, width: u16) -> Vec<Line<'static>> {
    let warning = Style::new().fg(Color::Yellow);
    let of = |note: &String| Line::styled(shown(note, usize::from(width).max(1)).into_owned(), warning);
    let mut lines: Vec<Line<'static>> = detail.notes.iter().take(rows).map(of).collect();
    if detail.notes.len() > rows
        && let Some(last) = lines.last_mut()
    {
        let more = detail.notes.len() + 1 - rows;
        *last = Line::styled(format!("{more} more notes: `highwater info` lists them"), warning);
    }
    lines
}

fn draw_totals(detail: &Detail, metric: Metric, area: Rect, frame: &mut Frame<'_>) {
    let metrics: Vec<Metric> = Metric::ALL
        .into_iter()
        .filter(|one| *one != Metric::DeviceUsed || detail.is_sampled || *one == metric)
        .collect();
    let styled = |one: Metric, text: String| {
        let style = if one == metric { BOLD.fg(Color::Cyan) } else { Style::new() };
        Cell::from(Text::styled(text, style).alignment(Alignment::Right))
    };
    let row = |name: &'static str, of: &dyn Fn(Metric) -> String| {
        Row::new(std::iter::once(Cell::from(name)).chain(metrics.iter().map(|one| styled(*one, of(*one)))))
    };
    let rows = [
        row("", &|one| total_name(one)),
        row("now", &|one| format_bytes(detail.totals.get(one))),
        row("peak", &|one| format_bytes(detail.peaks[one as usize].bytes)),
    ];
    let widths = std::iter::once(Constraint::Length(5)).chain(metrics.iter().map(|_| Constraint::Length(12)));
    let table_width = (5 + 13 * metrics.len() as u16).min(area.width);
    let [left, right] = Layout::horizontal([Constraint::Length(table_width), Constraint::Min(0)]).areas(area);
    frame.render_widget(Table::new(rows, widths).column_spacing(1), left);
    let peak = detail.peaks[metric as usize];
    let when = if detail.has_stages { format!("  in {}", stage_text(&peak.stage)) } else { String::new() };
    let of_capacity = detail.capacity.filter(|bytes| *bytes > 0).map(|bytes| {
        let share = peak.bytes as f64 * 100.0 / bytes as f64;
        format!("  peak {share:.1} % of {}", format_bytes(bytes))
    });
    // Beside the rows of now and of the peak.
    let width = usize::from(right.width).max(1);
    let lines = [String::new(), of_capacity.unwrap_or_default(), when];
    let lines = lines.map(|line| Line::from(shown(&line, width).into_owned()));
    frame.render_widget(Paragraph::new(lines.to_vec()).style(DIM), right);
}

fn draw_curve(detail: &Detail, metric: Metric, area: Rect, frame: &mut Frame<'_>) {
    let [scale, chart] = Layout::horizontal([Constraint::Length(SCALE), Constraint::Min(0)]).areas(area);
    let peak = detail.peaks[metric as usize].bytes;
    let mut lines = vec![Line::default(); usize::from(scale.height)];
    if let Some(first) = lines.first_mut() {
        *first = Line::from(format_bytes(peak)).right_aligned();
    }
    if let Some(last) = lines.last_mut().filter(|_| scale.height > 1) {
        *last = Line::from("0").right_aligned();
    }
    let with_gap = Rect { width: scale.width.saturating_sub(1), ..scale };
    frame.render_widget(Paragraph::new(lines).style(DIM), with_gap);
    // Bytes times the height might overflow.
    let scaled = |bytes: u64| (u128::from(bytes.min(peak)) * u128::from(PEAK_HEIGHT) / u128::from(peak.max(1))) as u64;
    let samples = detail.curve.sampled(metric, usize::from(chart.width)).into_iter().map(scaled);
    let line =
        Sparkline::default().data(samples.collect::<Vec<u64>>()).max(PEAK_HEIGHT).style(Style::new().fg(Color::Cyan));
    frame.render_widget(line, chart);
}

fn draw_recordings(answer: &Answer, area: Rect, frame: &mut Frame<'_>) {
    let room = usize::from(area.height.saturating_sub(1));
    // The selected recording is always in view.
    let first = (answer.choice.row + 1).saturating_sub(room);
    let metric = answer.choice.metric;
    let has_ranks = area.width >= WIDE;
    let state = |state: &State| match state {
        State::Idle(age) => format!("idle {}", age_text(*age)),
        state => state_text(state),
    };
    let row = |(at, one): (usize, &RecordingLine)| {
        let style = if at == answer.choice.row { Style::new().add_modifier(Modifier::REVERSED) } else { Style::new() };
        let rank = one.rank.filter(|_| has_ranks).map_or_else(String::new, |rank| format!("rank {rank}"));
        let step = one.stage.step.map_or_else(String::new, |step| step.to_string());
        Row::new([
            Cell::from(printable(&one.name).into_owned()),
            Cell::from(rank),
            size_cell(one.now),
            size_cell(one.peak.bytes),
            Cell::from(Text::from(step).alignment(Alignment::Right)),
            Cell::from(small_curve(&one.curve.sampled(metric, SMALL_CURVE), one.peak.bytes)),
            Cell::from(state(&one.state)),
        ])
        .style(style)
    };
    let rows = answer.recordings.iter().enumerate().skip(first).take(room).map(row);
    let count = answer.recordings.len();
    let name = match count > room {
        true => format!("{} to {} of {count}", first + 1, first + room),
        false => "recording".to_owned(),
    };
    let titles = [name.as_str(), "", "now", "peak", "step", "over time", ""];
    let right = [2, 3, 4];
    let title = |(at, text): (usize, &&str)| {
        let alignment = if right.contains(&at) { Alignment::Right } else { Alignment::Left };
        Cell::from(Text::from((*text).to_owned()).alignment(alignment))
    };
    let header = Row::new(titles.iter().enumerate().map(title)).style(BOLD);
    let widths = [
        Constraint::Min(12),
        Constraint::Length(if has_ranks { 8 } else { 0 }),
        Constraint::Length(SCALE),
        Constraint::Length(SCALE),
        Constraint::Length(6),
        Constraint::Length(SMALL_CURVE as u16),
        Constraint::Length(14),
    ];
    frame.render_widget(Table::new(rows, widths).header(header), area);
}

fn small_curve(samples: &[u64], max: u64) -> String {
    const LEVELS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let level = |bytes: &u64| (u128::from(*bytes) * 8).div_ceil(u128::from(max.max(1))).min(8) as usize;
    samples.iter().map(|bytes| LEVELS[level(bytes)]).collect()
}

fn draw_tables(detail: &Detail, answer: &Answer, area: Rect, frame: &mut Frame<'_>) {
    let steps = if detail.steps.is_empty() { 0 } else { 2 };
    let is_wide = area.width >= WIDE && answer.choice.key != GroupKey::Category;
    let [categories, groups] = &detail.groups;
    let parts = [Constraint::Fill(if is_wide { 2 } else { 0 }), Constraint::Fill(3), Constraint::Fill(steps)];
    let [first, second, third] = Layout::horizontal(parts).spacing(2).areas(area);
    if is_wide {
        draw_groups(GroupKey::Category, categories, first, frame);
    }
    draw_groups(answer.choice.key, groups, if is_wide { second } else { first.union(second) }, frame);
    if steps > 0 {
        draw_steps(detail, answer.choice.metric, third, frame);
    }
}

fn draw_groups(key: GroupKey, groups: &Groups, area: Rect, frame: &mut Frame<'_>) {
    let most = usize::from(area.height.saturating_sub(1));
    let name = usize::from(area.width.saturating_sub(2 * (SCALE + 1))).max(1);
    let peak = |row: &GroupRow| if groups.has_peak { size_cell(row.peak) } else { Cell::from("") };
    let row = |row: GroupRow| Row::new([Cell::from(group_text(key, &row.label, name)), peak(&row), size_cell(row.now)]);
    let right = |text: &'static str| Cell::from(Text::from(text).alignment(Alignment::Right));
    let header = Row::new([Cell::from(key.name()), right(if groups.has_peak { "at peak" } else { "" }), right("now")]);
    let widths = [Constraint::Min(4), Constraint::Length(SCALE), Constraint::Length(SCALE)];
    let table = Table::new(groups.at_most(most).into_iter().map(row), widths).header(header.style(BOLD));
    frame.render_widget(table, area);
}

fn group_text(key: GroupKey, label: &str, width: usize) -> String {
    match key {
        GroupKey::Frame | GroupKey::Stack => shown(&shorten_line(label, width.min(MAX_IN_TABLE)), width).into_owned(),
        _ => shown(label, width.min(MAX_IN_TABLE)).into_owned(),
    }
}

fn draw_steps(detail: &Detail, metric: Metric, area: Rect, frame: &mut Frame<'_>) {
    let right = |text: String| Cell::from(Text::from(text).alignment(Alignment::Right));
    let header = ["step", "peak", "end", "time"].map(|text| right(text.to_owned()));
    let rows = detail.steps.iter().rev().map(|step| {
        let time = step.times_ns.1.saturating_sub(step.times_ns.0);
        let time = if time > 0 { format_duration(time) } else { String::new() };
        let [peak, end] = [step.peak, step.end].map(|totals| format_bytes(totals.get(metric)));
        Row::new([format_count(u64::from(step.step)), peak, end, time].map(right))
    });
    let widths = [Constraint::Length(6), Constraint::Length(SCALE), Constraint::Length(SCALE), Constraint::Min(0)];
    frame.render_widget(Table::new(rows, widths).header(Row::new(header).style(BOLD)), area);
}

fn size_cell(bytes: u64) -> Cell<'static> {
    Cell::from(Text::from(format_bytes(bytes)).alignment(Alignment::Right))
}

fn key_line() -> Line<'static> {
    let named =
        |(key, what): (&'static str, &'static str)| [Span::styled(key, BOLD), Span::styled(format!(" {what}  "), DIM)];
    Line::from(HELP.into_iter().flat_map(named).collect::<Vec<_>>())
}
