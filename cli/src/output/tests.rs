//! Files as they are made, without a run around them.

use super::*;

fn outputs() -> Outputs {
    Outputs { force: true, inputs: Inputs::default(), places: HashMap::new(), tidy: Vec::new() }
}

fn create(path: &Path) -> Result<OutputFile> {
    outputs().create(path, Kind::Plot)
}

fn write_whole(path: &Path, text: &str) -> Result<()> {
    outputs().write(path, Kind::Plot, text)
}

#[test]
fn a_file_that_was_not_finished_leaves_nothing_behind_and_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("result.csv");
    write_whole(&path, "old").unwrap();
    let mut file = create(&path).unwrap();
    let full = |_: &mut File| -> std::io::Result<()> { Err(std::io::Error::other("disk full")) };
    assert!(file.write(full).unwrap_err().to_string().contains("result.csv: disk full"));
    drop(file);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "old");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    assert!(create(folder.path()).is_err());
    assert!(create(&folder.path().join("new/")).is_err());
}

#[cfg(unix)]
#[test]
fn what_is_no_regular_file_is_written_to_and_stays() {
    use std::os::unix::net::UnixListener;
    let folder = tempfile::tempdir().unwrap();
    // A socket can't be opened by its path: an error, and it is still there.
    let socket = folder.path().join("socket");
    let _listening = UnixListener::bind(&socket).unwrap();
    assert!(write_whole(&socket, "x").is_err());
    assert!(socket.exists() && !socket.is_file());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    let pipe = folder.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    if !made.is_ok_and(|status| status.success()) {
        return;
    }
    let reader = std::thread::spawn({
        let pipe = pipe.clone();
        move || std::fs::read_to_string(pipe).unwrap()
    });
    write_whole(&pipe, "through").unwrap();
    assert_eq!(reader.join().unwrap(), "through");
    assert!(pipe.exists() && !pipe.is_file());
}

#[cfg(unix)]
#[test]
fn a_link_stays_and_the_file_behind_it_is_renewed() {
    let folder = tempfile::tempdir().unwrap();
    let (file, link) = (folder.path().join("run-7.json"), folder.path().join("latest.json"));
    write_whole(&file, "old").unwrap();
    std::os::unix::fs::symlink(&file, &link).unwrap();
    write_whole(&link, "new").unwrap();
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "new");
    assert!(link.is_symlink());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
}

#[cfg(unix)]
#[test]
fn an_inode_that_an_input_has_left_may_be_written_to() {
    let folder = tempfile::tempdir().unwrap();
    let (grid, out) = (folder.path().join("grid.toml"), folder.path().join("out.csv"));
    std::fs::write(&grid, "").unwrap();
    std::fs::hard_link(&grid, &out).unwrap();
    let mut outputs = outputs();
    outputs.reads([&grid]);
    assert!(outputs.create(&out, Kind::SweepRows).is_err());
    std::fs::remove_file(&grid).unwrap();
    std::fs::write(&grid, "renewed").unwrap();
    outputs.write(&out, Kind::SweepRows, "").unwrap();
}
