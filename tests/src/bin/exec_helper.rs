//! The helper that runs shell commands, as a program of its own for tests that start a server in-process.

fn main() -> std::process::ExitCode {
    tns_server::exec_helper::run()
}
