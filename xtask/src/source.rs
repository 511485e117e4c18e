//! Finds what is code in a Rust file: a small lexer that blanks comments, strings and test modules.
//!
//! It keeps every newline, so line numbers stay true. It knows just enough of the language to count: nested comments,
//! raw strings, and how characters differ from lifetimes. It does not parse.

/// The text with comments, and the contents of strings and characters, turned into spaces.
pub fn code_only(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        let end = blank_end(&chars, at);
        if end > at {
            out.extend(
                chars[at..end]
                    .iter()
                    .map(|c| if *c == '\n' { '\n' } else { ' ' }),
            );
            at = end;
        } else {
            out.push(chars[at]);
            at += 1;
        }
    }
    out
}

/// `code_only` without the modules that are compiled only for tests.
pub fn product_code(text: &str) -> String {
    let code = code_only(text);
    let mut out = String::with_capacity(code.len());
    let mut rest = code.as_str();
    while let Some((before, body_end)) = find_test_module(rest) {
        out.push_str(&rest[..before]);
        out.extend(rest[before..body_end].chars().filter(|c| *c == '\n'));
        rest = &rest[body_end..];
    }
    out.push_str(rest);
    out
}

/// Lines that hold code, in the result of `product_code`.
pub fn code_lines(product: &str) -> usize {
    product
        .lines()
        .filter(|line| !line.trim().is_empty())
        .count()
}

/// Where the comment, string or character that begins at `at` ends. Returns `at` if none begins there.
fn blank_end(chars: &[char], at: usize) -> usize {
    let next = chars.get(at + 1).copied();
    match chars[at] {
        '/' if next == Some('/') => find(chars, at, |c| c == '\n'),
        '/' if next == Some('*') => block_comment_end(chars, at),
        '"' => string_end(chars, at),
        '\'' => char_end(chars, at),
        'r' if !follows_name(chars, at) => raw_string_end(chars, at).unwrap_or(at),
        _ => at,
    }
}

fn find(chars: &[char], from: usize, wanted: impl Fn(char) -> bool) -> usize {
    (from..chars.len())
        .find(|i| wanted(chars[*i]))
        .unwrap_or(chars.len())
}

fn block_comment_end(chars: &[char], at: usize) -> usize {
    let mut depth = 0_usize;
    let mut i = at;
    while i + 1 < chars.len() {
        match (chars[i], chars[i + 1]) {
            ('/', '*') => {
                depth += 1;
                i += 2;
            }
            ('*', '/') => {
                depth -= 1;
                i += 2;
                if depth == 0 {
                    return i;
                }
            }
            _ => i += 1,
        }
    }
    chars.len()
}

fn string_end(chars: &[char], at: usize) -> usize {
    let mut i = at + 1;
    while i < chars.len() {
        match chars[i] {
            '\\' => i += 2,
            '"' => return i + 1,
            _ => i += 1,
        }
    }
    chars.len()
}

/// A quote begins a character if a backslash follows, or if the character after next is a quote. Otherwise it begins a
/// lifetime.
fn char_end(chars: &[char], at: usize) -> usize {
    if chars.get(at + 1) == Some(&'\\') {
        return (find(chars, at + 3, |c| c == '\'') + 1).min(chars.len());
    }
    if chars.get(at + 2) == Some(&'\'') {
        at + 3
    } else {
        at
    }
}

/// A letter before `r` makes `r` a part of a name, except in the prefixes `br` and `cr`.
fn follows_name(chars: &[char], at: usize) -> bool {
    let is_name = |i: usize| chars[i].is_alphanumeric() || chars[i] == '_';
    match at.checked_sub(1) {
        None => false,
        Some(before) if matches!(chars[before], 'b' | 'c') => before > 0 && is_name(before - 1),
        Some(before) => is_name(before),
    }
}

fn raw_string_end(chars: &[char], at: usize) -> Option<usize> {
    let quote = find(chars, at + 1, |c| c != '#');
    let hashes = quote - at - 1;
    if chars.get(quote) != Some(&'"') {
        return None;
    }
    let closes = |i: usize| {
        chars[i] == '"'
            && i + hashes < chars.len()
            && chars[i + 1..=i + hashes].iter().all(|c| *c == '#')
    };
    Some(
        (quote + 1..chars.len())
            .find(|i| closes(*i))
            .map_or(chars.len(), |i| i + hashes + 1),
    )
}

/// Byte range of the first `#[cfg(…test…)] mod name { … }` of blanked code.
fn find_test_module(code: &str) -> Option<(usize, usize)> {
    let mut offset = 0;
    let mut attribute: Option<usize> = None;
    for line in code.split_inclusive('\n') {
        let trimmed = line.trim();
        let is_attribute = trimmed.starts_with("#[");
        if trimmed.starts_with("#[cfg(") && has_word(trimmed, "test") && !trimmed.contains("not(") {
            attribute = attribute.or(Some(offset));
        } else if let Some(begin) = attribute.filter(|_| !is_attribute && !trimmed.is_empty()) {
            let is_module = trimmed.split_whitespace().any(|word| word == "mod");
            if is_module && trimmed.contains('{') {
                return Some((begin, offset + closing_brace(&code[offset..])));
            }
            attribute = None;
        }
        offset += line.len();
    }
    None
}

/// Number of bytes up to and including the brace that closes the first opened one.
fn closing_brace(code: &str) -> usize {
    let mut depth = 0_usize;
    for (i, c) in code.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth <= 1 => return i + 1,
            '}' => depth -= 1,
            _ => {}
        }
    }
    code.len()
}

/// Does `word` stand in `text` by itself?
pub fn has_word(text: &str, word: &str) -> bool {
    words(text).any(|(_, found)| found == word)
}

/// Names and keywords of blanked code, each with its byte offset.
pub fn words(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    text.split(move |c| !is_name(c))
        .filter(|word| !word.is_empty())
        .map(|word| (word.as_ptr().addr() - text.as_ptr().addr(), word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_strings_are_blanked() {
        let text =
            "let a = \"unsafe { \\\" }\"; // unsafe {\n/* a /* nested */ unsafe */ let b = 1;\n";
        let code = code_only(text);
        assert!(!code.contains("unsafe"), "{code}");
        assert!(code.contains("let a =") && code.contains("let b = 1;"));
        assert_eq!(code.matches('\n').count(), text.matches('\n').count());
    }

    #[test]
    fn raw_strings_end_at_their_own_mark() {
        let code = code_only("let a = r#\"one \" unsafe\"#; let b = br\"unsafe\"; r#type();");
        assert!(!code.contains("unsafe"), "{code}");
        assert!(code.contains("let b") && code.contains("r#type();"));
    }

    #[test]
    fn lifetimes_are_not_characters() {
        let code = code_only(
            "fn f<'a>(x: &'a str) -> char { if x == y { '\"' } else { '\\'' } } unsafe {}",
        );
        assert!(code.contains("'a") && code.contains("unsafe {}"), "{code}");
    }

    #[test]
    fn test_modules_do_not_count() {
        let text =
            "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() { unsafe { } }\n}\nfn c() {}\n";
        let product = product_code(text);
        assert!(!product.contains("unsafe"));
        assert!(product.contains("fn a") && product.contains("fn c"));
        assert_eq!(code_lines(&product), 2);
        let other = "#[cfg(not(test))]\nmod real {\n    fn b() {}\n}\n";
        assert_eq!(code_lines(&product_code(other)), 4);
    }

    #[test]
    fn words_have_offsets() {
        let found: Vec<_> = words("ab  c_1(d)").collect();
        assert_eq!(found, [(0, "ab"), (4, "c_1"), (8, "d")]);
    }
}
