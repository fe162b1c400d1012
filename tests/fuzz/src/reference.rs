//! `text/event-stream` read a second time, slowly and from the whole body, as the HTML Living Standard words
//! it: what the decoder says must be the same. It shares nothing with the decoder.

/// Returns the data of the events; one that nothing ended counts too, as the product has it.
pub(crate) fn events(body: &[u8]) -> Vec<String> {
    let body = body.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(body);
    let mut events = Vec::new();
    let mut data: Option<Vec<u8>> = None;
    for line in lines(body) {
        if line.is_empty() {
            events.extend(data.take());
            continue;
        }
        let (name, value) = match line.iter().position(|byte| *byte == b':') {
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (line, &line[line.len()..]),
        };
        if name == b"data" {
            let value = value.strip_prefix(b" ").unwrap_or(value);
            match &mut data {
                Some(data) => {
                    data.push(b'\n');
                    data.extend_from_slice(value);
                }
                None => data = Some(value.to_vec()),
            }
        }
    }
    events.extend(data);
    events.into_iter().map(|data| String::from_utf8_lossy(&data).into_owned()).collect()
}

fn lines(body: &[u8]) -> Vec<&[u8]> {
    let mut lines = Vec::new();
    let mut rest = body;
    while !rest.is_empty() {
        let end = rest.iter().position(|byte| matches!(byte, b'\r' | b'\n'));
        let Some(end) = end else {
            lines.push(rest);
            break;
        };
        lines.push(&rest[..end]);
        let width = if rest[end..].starts_with(b"\r\n") { 2 } else { 1 };
        rest = &rest[end + width..];
    }
    lines
}
