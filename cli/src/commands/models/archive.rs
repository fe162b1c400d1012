//! The one model in a zip archive or a wheel. No path of the archive is ever used as one, and nothing is
//! unpacked beyond the size that the archive declares and the disk has room for.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;

use anyhow::Context as _;
use tns_server::ModelName;
use zip::ZipArchive;

use super::{place, source};
use crate::exit::{Exit, Stop};

/// Begins every zip archive.
const MAGIC: [u8; 4] = *b"PK\x03\x04";
/// Most files in an archive.
const MAX_FILES: usize = 10_000;

/// Whether a file is a zip archive.
///
/// # Errors
/// When it can't be read.
pub(super) fn is_archive(path: &Path) -> io::Result<bool> {
    let mut begin = Vec::new();
    File::open(path)?.take(MAGIC.len() as u64).read_to_end(&mut begin)?;
    Ok(begin == MAGIC)
}

/// Writes the one model of an archive into `file`, and returns the name that it has there.
///
/// # Errors
/// A [`Stop`] when there is none, or more than one, or not the one that is declared.
pub(super) fn unpack(archive: &Path, to: &Path, file: &mut File) -> anyhow::Result<Option<ModelName>> {
    let unusable = |why: &str| Stop::new(Exit::Failed, format!("the archive {why}"));
    let mut zip = ZipArchive::new(io::BufReader::new(File::open(archive).context("open the archive")?))
        .map_err(|error| unusable(&format!("is damaged: {error}")))?;
    if zip.len() > MAX_FILES {
        return Err(unusable("holds more than 10,000 files").into());
    }
    let names = zip.file_names().filter_map(Result::ok).filter(|name| name.ends_with(".gguf"));
    let names: Vec<String> = names.map(Into::into).collect();
    let [name] = names.as_slice() else {
        let why = if names.is_empty() { "holds no .gguf file" } else { "holds more than one .gguf file" };
        return Err(unusable(why).into());
    };
    let entry = zip.by_name(name).map_err(|error| unusable(&format!("can't be read: {error}")))?;
    let declared = entry.size();
    place::check_room(to, declared)?;
    file.set_len(0).context("write the model")?;
    file.seek(SeekFrom::Start(0)).context("write the model")?;
    // One byte more shows that there is more; the checksum is compared at the end.
    let written = io::copy(&mut entry.take(declared.saturating_add(1)), file);
    match written {
        Ok(written) if written == declared => {}
        Ok(_) => return Err(unusable("holds a file of another size than it says").into()),
        Err(error) if error.kind() == io::ErrorKind::StorageFull => {
            return Err(error).context("write the model");
        }
        Err(error) => return Err(unusable(&format!("is damaged: {error}")).into()),
    }
    file.sync_all().context("write the model")?;
    let stem = name.rsplit(['/', '\\']).next().unwrap_or(name);
    Ok(source::named(stem).ok())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use zip::ZipWriter;
    use zip::write::SimpleFileOptions;

    use super::*;

    /// Writes an archive of these files.
    fn archive(dir: &Path, files: &[(&str, &[u8])]) -> std::path::PathBuf {
        let path = dir.join("archive.zip");
        let mut zip = ZipWriter::new(File::create(&path).unwrap());
        for (name, bytes) in files {
            zip.start_file(*name, SimpleFileOptions::default()).unwrap();
            zip.write_all(bytes).unwrap();
        }
        zip.finish().unwrap();
        path
    }

    fn unpacked(dir: &Path, archive: &Path) -> anyhow::Result<(Option<ModelName>, Vec<u8>)> {
        let to = dir.join("model");
        let mut file = File::options().create(true).write(true).truncate(false).open(&to).unwrap();
        let name = unpack(archive, &to, &mut file)?;
        Ok((name, std::fs::read(to).unwrap()))
    }

    #[test]
    fn the_one_model_is_taken_by_its_last_name() {
        let dir = tempfile::tempdir().unwrap();
        let long = vec![7; 100_000];
        let path = archive(dir.path(), &[("pkg/__init__.py", b"x"), ("../../etc/m.1.gguf", &long)]);
        assert!(is_archive(&path).unwrap());
        let (name, bytes) = unpacked(dir.path(), &path).unwrap();
        assert_eq!((name.unwrap().as_str(), bytes), ("m.1", long));
        let mut there: Vec<_> =
            std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        there.sort();
        assert_eq!(there, ["archive.zip", "model"]);
    }

    #[test]
    fn none_and_several_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let none = archive(dir.path(), &[("a.txt", b"x")]);
        assert_eq!(unpacked(dir.path(), &none).unwrap_err().to_string(), "the archive holds no .gguf file");
        let two = archive(dir.path(), &[("a.gguf", b"x"), ("b.gguf", b"y")]);
        assert!(unpacked(dir.path(), &two).unwrap_err().to_string().contains("more than one"));
    }

    #[test]
    fn an_archive_that_lies_or_is_damaged_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = archive(dir.path(), &[("a.gguf", &vec![0; 1 << 20])]);
        let good = std::fs::read(&path).unwrap();
        // The directory at the end declares the size that is believed.
        let at = good.windows(4).position(|bytes| bytes == b"PK\x01\x02").unwrap() + 24;
        for size in [1_000_u32, (1 << 20) - 1, (1 << 20) + 1] {
            let mut lies = good.clone();
            lies[at..at + 4].copy_from_slice(&size.to_le_bytes());
            std::fs::write(&path, &lies).unwrap();
            let error = unpacked(dir.path(), &path).unwrap_err();
            assert!(error.to_string().starts_with("the archive "), "{error}");
            assert!(std::fs::metadata(dir.path().join("model")).unwrap().len() <= u64::from(size) + 1);
        }
        for cut in [5, good.len() / 2, good.len() - 1] {
            std::fs::write(&path, &good[..cut]).unwrap();
            assert!(unpacked(dir.path(), &path).unwrap_err().to_string().contains("damaged"), "{cut}");
        }
    }
}
