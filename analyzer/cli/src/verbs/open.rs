// SPDX-License-Identifier: Apache-2.0
//! `gapprobe open`: a trace in the browser. The page fetches it from a server of this process
//! (`server.rs`), and is told what to show of it (`view.rs`). Nothing leaves the machine.

use std::fs;
use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use formats::Format;
use spool::retention::is_trace;
use verdict::output::chrome::document::first_time;
use verdict::text::duration::long;

use crate::verbs::exit::{Exit, Failure};
use crate::verbs::{export, figures, input, output, process, recover, report, talk};
use crate::Outcome;

mod browser;
mod server;
mod view;

use browser::Browser;
use server::{End, Offer};
use view::View;

const EXAMPLES: &str = "\
Examples:
  gapprobe open                             the newest trace of this folder, in Perfetto
  gapprobe open trace.json.gz               this one; any input of gapprobe analyze
  gapprobe open trace.json.gz --report      its page instead (gapprobe report)
  gapprobe open --print-url                 the URL on stdout, and no browser
  gapprobe open --origin http://localhost:10000    in a Perfetto of your own";

/// The only port that Perfetto's Content-Security-Policy lets it ask.
const PORT: u16 = 9001;

/// Show a trace in Perfetto, with the why-idle track and the worst step in view
///
/// The page fetches the trace from 127.0.0.1:9001, where gapprobe serves it once, to that page
/// alone, and ends. It is not uploaded. Pinned are the steps and why the GPU was idle; in view is
/// the steady step in which it did not compute the longest. What is no trace of gapprobe is
/// exported first, as by gapprobe export.
///
/// On another host than your screen's (SSH_CONNECTION is set, DISPLAY, WAYLAND_DISPLAY and BROWSER
/// are not) no browser is started: stderr has the ssh line to type on your own machine, stdout the
/// URL to open there.
#[derive(clap::Args)]
#[command(before_help = EXAMPLES)]
pub(crate) struct Args {
    /// The trace, or a folder: the newest trace in it [default: GAPPROBE_DIR, else the current
    /// one]
    trace: Option<PathBuf>,
    /// Open its page instead; it is made in the current directory where it is not there
    #[arg(long, conflicts_with_all = ["origin", "print_url", "port", "wait"])]
    report: bool,
    /// Print the URL to stdout and start no browser; the trace is served all the same
    #[arg(long)]
    print_url: bool,
    /// Another Perfetto than the public one
    #[arg(long, value_name = "URL", default_value = "https://ui.perfetto.dev", value_parser = Ui::parse)]
    origin: Ui,
    /// Listen here, where 9001 is taken; a browser reaches it by ssh -L 9001:127.0.0.1:PORT
    #[arg(long, default_value_t = PORT, value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
    /// Wait at most so long for the page
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = figures::time)]
    wait: Duration,
}

/// A Perfetto.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Ui {
    /// Its page, without the last slash.
    page: String,
    /// `scheme://host[:port]`, as browsers write it.
    origin: String,
}

impl Ui {
    fn parse(text: &str) -> Result<Ui, String> {
        let page = text.trim_end_matches('/');
        let parts = page.split_once("://").filter(|(scheme, _)| matches!(*scheme, "http" | "https"));
        let host = parts.and_then(|(_, rest)| rest.split('/').next()).filter(|host| !host.is_empty());
        let odd = |c: char| c.is_control() || c.is_whitespace() || matches!(c, '?' | '#' | '@');
        match (parts, host) {
            (Some((scheme, _)), Some(host)) if !page.contains(odd) => {
                let origin = format!("{scheme}://{}", host.to_lowercase());
                Ok(Ui { page: page.to_owned(), origin })
            }
            _ => Err("a URL such as http://localhost:10000".to_owned()),
        }
    }
}

/// Opens the trace and waits until the page has it.
pub(crate) fn run(args: &Args) -> Outcome {
    let trace = chosen(args.trace.as_deref())?;
    if args.report {
        return open_page(&trace);
    }
    // before the trace is read: it may be large
    let listener = server::listen(args.port).map_err(|e| no_port(args.port, &e))?;
    let Shown { name, bytes, view, zero } = shown(&trace)?;
    let secret = server::secret()
        .map_err(|e| Failure::new(Exit::Problem, format!("/dev/urandom: {e}")).hint("mount /dev"))?;
    let path = format!("/{secret}/{}", view::encoded(&name));
    let url = view::url(&args.origin.page, &format!("http://127.0.0.1:{PORT}{path}"), view, zero);
    let offer = Offer { path, bytes, origin: args.origin.origin.clone(), ports: [PORT, args.port] };
    if let Some(view) = view {
        talk::say(format!("gapprobe: {name}: step {} is in view", view.step));
    }
    process::end_when_asked();
    let browser = start(args, &url)?;
    let ended = wait(&listener, offer, browser, args.wait, &url)
        .map_err(|e| Failure::new(Exit::Problem, format!("127.0.0.1:{}: {e}", args.port)))?;
    match ended {
        End::Served => {
            talk::say(format!("gapprobe: {name}: the browser has it"));
            Ok(Exit::Ok)
        }
        End::Stopped => {
            Err(Failure::new(Exit::Problem, format!("{name}: ended before a browser asked for it")))
        }
        End::TimedOut => {
            let waited = long(args.wait.as_nanos() as u64);
            let what = format!("{name}: no browser asked for it within {waited}");
            Err(Failure::new(Exit::Problem, what)
                .hint("did it ask whether the page may reach this device, or the local network? It has to")
                .hint("--wait 1h waits longer; --report opens a page that needs no server"))
        }
    }
}

/// The trace that is meant; says which where it was not named.
fn chosen(named: Option<&Path>) -> Result<PathBuf, Failure> {
    let folder = match named {
        Some(named) if !named.is_dir() => return Ok(named.to_owned()),
        Some(folder) => folder.to_owned(),
        None => recover::default_directory(),
    };
    let unreadable = |e: io::Error| Failure::new(Exit::Unreadable, format!("{}: {e}", folder.display()));
    let traces = fs::read_dir(&folder).map_err(unreadable)?.flatten().filter_map(|entry| {
        let meta = entry.metadata().ok().filter(|m| m.is_file())?;
        let is_one = entry.file_name().to_str().is_some_and(is_trace);
        Some((meta.modified().ok()?, entry.path())).filter(|_| is_one)
    });
    let Some((_, newest)) = traces.max() else {
        let what = format!("{}: no trace of gapprobe (gapprobe-*.json.gz) is there", folder.display());
        return Err(Failure::new(Exit::Unreadable, what)
            .hint("gapprobe open TRACE opens a named one, or the newest of a folder; gapprobe run COMMAND records one"));
    };
    talk::say(format!("gapprobe: the newest trace: {}", newest.display()));
    Ok(newest)
}

/// What the page gets.
struct Shown {
    name: String,
    bytes: Vec<u8>,
    view: Option<View>,
    /// The run's time of the trace's stamp 0.
    zero: u64,
}

/// A trace of gapprobe as it is; of everything else what `export` makes of it.
fn shown(trace: &Path) -> Result<Shown, Failure> {
    let input = input::open(trace)?;
    let analysis = verdict::analyze(&input.run);
    let view = view::of(&input.run, &analysis);
    let unreadable = |e: io::Error| Failure::new(Exit::Unreadable, format!("{}: {e}", trace.display()));
    if let Format::Own(_) = input.format {
        let bytes = fs::read(trace).map_err(unreadable)?;
        return Ok(Shown { name: output::name(trace), bytes, view, zero: input.zero });
    }
    let bytes = export::chrome(&input.run, &analysis).map_err(unreadable)?;
    let name = output::stem(trace) + export::CHROME_ENDING;
    let what = input.format.name();
    talk::say(format!("gapprobe: {}: a {what}, shown as gapprobe export writes it", trace.display()));
    Ok(Shown { name, bytes, view, zero: first_time(&input.run, &analysis) })
}

/// A browser that opens `url`, if one is to be started. Else the URL is on stdout, and what leads
/// from there to here on stderr.
fn start(args: &Args, url: &str) -> Result<Option<Browser>, Failure> {
    let waits =
        format!("waiting until the page has it, at most {}; Ctrl-C ends", long(args.wait.as_nanos() as u64));
    let remote = browser::is_remote() || args.port != PORT;
    if remote || args.print_url {
        talk::say(format!("gapprobe: {waits}"));
        if remote {
            let (port, host) = (args.port, browser::login());
            talk::say("gapprobe: type this on your own machine, then open the URL there:");
            talk::say(format!("  ssh -N -L {PORT}:127.0.0.1:{port} {host}"));
        }
        talk::print(url)?;
        return Ok(None);
    }
    match Browser::start(url) {
        Ok(browser) => {
            talk::say(format!("gapprobe: opening {} ({}); {waits}", args.origin.page, browser.name()));
            Ok(Some(browser))
        }
        Err(why) => no_browser(&why, url).map(|()| None),
    }
}

/// The server goes on: the URL may be opened by hand.
fn no_browser(why: &str, url: &str) -> Result<(), Failure> {
    talk::say(format!("gapprobe: no browser was started: {why}"));
    talk::hint("open this URL yourself, or set BROWSER to the program that does; Ctrl-C ends");
    talk::print(url)
}

fn wait(
    listener: &TcpListener,
    offer: Offer,
    mut browser: Option<Browser>,
    within: Duration,
    url: &str,
) -> io::Result<End> {
    server::serve(listener, offer, within, || {
        if let Some(why) = browser.as_mut().and_then(Browser::failed) {
            browser = None;
            // nobody reads stdout: stderr has told
            let _ = no_browser(&why, url);
        }
        process::was_asked_to_end()
    })
}

fn no_port(port: u16, e: &io::Error) -> Failure {
    let place = format!("127.0.0.1:{port}");
    if e.kind() != io::ErrorKind::AddrInUse {
        return Failure::new(Exit::Problem, format!("cannot listen at {place}: {e}"));
    }
    Failure::new(Exit::Problem, format!("port {port} is in use ({place})"))
        .hint(format!("end what listens there (ss -ltnp sport = :{port}): another gapprobe open, or trace_processor"))
        .hint(format!(
            "--report opens a page that needs no port; --port takes another one, for a browser that comes by ssh -L {PORT}:127.0.0.1:PORT"
        ))
}

/// `--report`: the page of `gapprobe report`, in the browser.
fn open_page(trace: &Path) -> Outcome {
    let page = report::default_name(trace, None);
    if !page.exists() {
        report::make(trace, None, false, &page, false)?;
    }
    let page = fs::canonicalize(&page).unwrap_or(page);
    let shown = page.display();
    if browser::is_remote() {
        talk::say("gapprobe: type this on your own machine, then open the file there:");
        talk::say(format!("  scp {}:{shown} .", browser::login()));
    } else {
        let opened =
            Browser::start(&page.to_string_lossy()).and_then(|mut browser| match browser.settled() {
                Some(why) => Err(why),
                None => Ok(()),
            });
        opened.map_err(|why| {
            Failure::new(Exit::Problem, format!("no browser was started: {why}"))
                .hint(format!("open {shown} yourself, or set BROWSER to the program that does"))
        })?;
    }
    talk::print(shown).map(|()| Exit::Ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_what_a_browser_sends_and_nothing_else_is_one() {
        for (text, page, origin) in [
            ("https://ui.perfetto.dev", "https://ui.perfetto.dev", "https://ui.perfetto.dev"),
            ("http://LOCALHOST:10000/", "http://LOCALHOST:10000", "http://localhost:10000"),
            (
                "https://tools.example.org/perfetto/",
                "https://tools.example.org/perfetto",
                "https://tools.example.org",
            ),
        ] {
            assert_eq!(Ui::parse(text), Ok(Ui { page: page.to_owned(), origin: origin.to_owned() }));
        }
        for wrong in [
            "",
            "ui.perfetto.dev",
            "ftp://a",
            "https://",
            "http://a b",
            "http://a/#x",
            "http://u@a",
            "http://a\r\nX: y",
        ] {
            assert!(Ui::parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
