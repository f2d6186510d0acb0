//! Rust text as tokens: names and punctuation, without comments and without the
//! contents of literals. Not a parser: it knows where text is code, and which
//! code is compiled for tests only.

/// Stands for any literal, so that what surrounds it stays apart.
const LITERAL: &str = "\"\"";

/// A name, a number or a punctuation mark (`::` is one), where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) text: String,
    /// Line, counted from one.
    pub(crate) line: usize,
    /// Inside an item that is compiled for tests only.
    pub(crate) in_test: bool,
}

impl Token {
    /// Whether this is exactly `text`.
    pub(crate) fn is(&self, text: &str) -> bool {
        self.text == text
    }
}

/// Whether `tokens` begin with exactly these texts.
pub(crate) fn starts_with(tokens: &[Token], texts: &[&str]) -> bool {
    tokens.len() >= texts.len() && tokens.iter().zip(texts).all(|(token, text)| token.is(text))
}

/// The tokens of `text`, each marked if it stands in test code.
pub(crate) fn tokenize(text: &str) -> Vec<Token> {
    let mut lexer = Lexer {
        rest: text,
        line: 1,
        tokens: Vec::new(),
    };
    while lexer.step() {}
    let mut tokens = lexer.tokens;
    mark_tests(&mut tokens);
    tokens
}

/// Names of the modules in files of their own that exist in test builds only.
pub(crate) fn declared_test_modules(tokens: &[Token]) -> Vec<String> {
    tokens
        .windows(3)
        .filter(|window| window[0].is("mod") && window[0].in_test && window[2].is(";"))
        .map(|window| window[1].text.clone())
        .collect()
}

/// The attribute that begins at `tokens[0]`: its contents without `#[` and `]`,
/// and how many tokens it takes. `None` if none begins here.
pub(crate) fn attribute(tokens: &[Token]) -> Option<(&[Token], usize)> {
    let open = if starts_with(tokens, &["#", "["]) {
        1
    } else if starts_with(tokens, &["#", "!", "["]) {
        2
    } else {
        return None;
    };
    let close = matching(tokens, open)?;
    Some((&tokens[open + 1..close], close + 1))
}

struct Lexer<'a> {
    rest: &'a str,
    line: usize,
    tokens: Vec<Token>,
}

impl<'a> Lexer<'a> {
    /// Takes one token, comment or stretch of blanks; false at the end.
    fn step(&mut self) -> bool {
        let Some(first) = self.rest.chars().next() else {
            return false;
        };
        if first.is_whitespace() {
            self.skip(first.len_utf8());
        } else if self.rest.starts_with("//") {
            self.skip(self.rest.find('\n').unwrap_or(self.rest.len()));
        } else if self.rest.starts_with("/*") {
            self.skip(block_comment_len(self.rest));
        } else if first == '"' {
            self.take_literal(quoted_len(self.rest, '"'));
        } else if first == '\'' {
            self.take_quote();
        } else if is_word(first) {
            self.take_word();
        } else if self.rest.starts_with("::") {
            self.take(2);
        } else {
            self.take(first.len_utf8());
        }
        true
    }

    /// A character literal, or the lifetime or label that also begins with a quote.
    fn take_quote(&mut self) {
        let mut following = self.rest.chars().skip(1);
        let (second, third) = (following.next(), following.next());
        if second == Some('\\') || third == Some('\'') {
            self.take_literal(quoted_len(self.rest, '\''));
        } else {
            self.skip(1 + word_len(&self.rest[1..]));
        }
    }

    /// A name or number, or the literal that it is the prefix of.
    fn take_word(&mut self) {
        let len = word_len(self.rest);
        let (word, after) = self.rest.split_at(len);
        let hashes = after.len() - after.trim_start_matches('#').len();
        let is_raw = matches!(word, "r" | "br" | "cr");
        if is_raw && after[hashes..].starts_with('"') {
            let close = format!("\"{}", "#".repeat(hashes));
            let body = len + hashes + 1;
            let end = self.rest[body..]
                .find(&close)
                .map_or(self.rest.len(), |at| body + at + close.len());
            self.take_literal(end);
        } else if word == "r" && hashes == 1 && after[1..].starts_with(is_word) {
            // A raw identifier: the name is what counts.
            self.skip(len + 1);
            self.take(word_len(self.rest));
        } else if matches!(word, "b" | "c") && after.starts_with('"') {
            self.take_literal(len + quoted_len(after, '"'));
        } else if word == "b" && after.starts_with('\'') {
            self.take_literal(len + quoted_len(after, '\''));
        } else {
            self.take(len);
        }
    }

    fn take(&mut self, len: usize) {
        let text = self.rest[..len].to_owned();
        self.push(text);
        self.skip(len);
    }

    fn take_literal(&mut self, len: usize) {
        self.push(LITERAL.to_owned());
        self.skip(len);
    }

    fn push(&mut self, text: String) {
        self.tokens.push(Token {
            text,
            line: self.line,
            in_test: false,
        });
    }

    fn skip(&mut self, len: usize) {
        let (skipped, rest) = self.rest.split_at(len);
        self.line += skipped.matches('\n').count();
        self.rest = rest;
    }
}

fn is_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

fn word_len(text: &str) -> usize {
    text.find(|character| !is_word(character))
        .unwrap_or(text.len())
}

/// Bytes of the literal that begins at the quote at the front of `text`; up to the
/// end of the text if it is never closed.
fn quoted_len(text: &str, quote: char) -> usize {
    let mut is_escaped = false;
    for (at, character) in text.char_indices().skip(1) {
        if is_escaped {
            is_escaped = false;
        } else if character == '\\' {
            is_escaped = true;
        } else if character == quote {
            return at + 1;
        }
    }
    text.len()
}

/// Bytes of the block comment at the front of `text`; such comments nest.
fn block_comment_len(text: &str) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        if rest.starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest.starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += rest.chars().next().map_or(1, char::len_utf8);
        }
    }
    text.len()
}

/// Marks every item that follows `#[test]` or a `cfg` that only test builds meet,
/// and everything if the file itself carries such a `cfg`.
fn mark_tests(tokens: &mut [Token]) {
    let mut at = 0;
    let mut is_head = true;
    while at < tokens.len() {
        let Some((contents, len)) = attribute(&tokens[at..]) else {
            is_head = false;
            at += 1;
            continue;
        };
        let is_inner = tokens[at + 1].is("!");
        is_head &= is_inner;
        let range = match (means_test(contents), is_inner) {
            (true, true) if is_head => 0..tokens.len(),
            (true, false) => at..item_end(tokens, at + len),
            _ => at..at,
        };
        at += len;
        for token in &mut tokens[range] {
            token.in_test = true;
        }
    }
}

/// Whether an attribute's contents keep its item out of every build but tests.
fn means_test(contents: &[Token]) -> bool {
    match contents {
        [only] => only.is("test"),
        [cfg, open, condition @ .., _close] if cfg.is("cfg") && open.is("(") => {
            implies_test(condition)
        }
        _ => false,
    }
}

/// Whether a `cfg` condition cannot hold without `test`.
fn implies_test(condition: &[Token]) -> bool {
    match condition {
        [only] => only.is("test"),
        [name, open, inner @ .., _close] if open.is("(") => {
            let mut parts = split_at_commas(inner).into_iter();
            match name.text.as_str() {
                "all" => parts.any(implies_test),
                "any" => parts.len() > 0 && parts.all(implies_test),
                _ => false,
            }
        }
        _ => false,
    }
}

fn split_at_commas(tokens: &[Token]) -> Vec<&[Token]> {
    let mut depth = 0_usize;
    let parts = tokens.split(|token| {
        match token.text.as_str() {
            "(" => depth += 1,
            ")" => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0 && token.is(",")
    });
    parts.filter(|part| !part.is_empty()).collect()
}

/// One past the last token of the item that begins at `start`: its body in braces,
/// or the semicolon that ends it. A field or an argument ends at the latest where
/// what holds it does.
fn item_end(tokens: &[Token], start: usize) -> usize {
    let mut at = start;
    while at < tokens.len() {
        match tokens[at].text.as_str() {
            ";" => return at + 1,
            "{" => return matching(tokens, at).map_or(tokens.len(), |close| close + 1),
            "(" | "[" => at = matching(tokens, at).unwrap_or(tokens.len()),
            ")" | "]" | "}" => return at,
            _ => {}
        }
        at += 1;
    }
    tokens.len()
}

/// The bracket that closes the one at `open`.
fn matching(tokens: &[Token], open: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        match token.text.as_str() {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(at);
                }
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(source: &str) -> Vec<String> {
        tokenize(source).into_iter().map(|t| t.text).collect()
    }

    fn names_in_tests(source: &str) -> Vec<String> {
        tokenize(source)
            .into_iter()
            .filter(|token| token.in_test && token.text.starts_with("t_"))
            .map(|token| token.text)
            .collect()
    }

    #[test]
    fn comments_are_no_tokens() {
        let source = "a // b\n/* c /* d */ e */ f /// g\n//! h\ni";
        assert_eq!(texts(source), ["a", "f", "i"]);
    }

    #[test]
    fn literals_lose_their_contents() {
        let source = r##"a("b \" c", 'd', '\'', b'e', b"f", c"g", r"h\", r#"i " j"#, br"k", 'é')"##;
        let mut expected = vec!["a", "("];
        for _ in 0..9 {
            expected.extend([LITERAL, ","]);
        }
        expected.extend([LITERAL, ")"]);
        assert_eq!(texts(source), expected);
    }

    #[test]
    fn lifetimes_and_raw_names_are_not_literals() {
        assert_eq!(texts("&'a str"), ["&", "str"]);
        assert_eq!(texts("fn f<'a>() {}").last().unwrap(), "}");
        assert_eq!(texts("r#type::r"), ["type", "::", "r"]);
    }

    #[test]
    fn an_open_literal_or_comment_ends_with_the_text() {
        assert_eq!(texts("a \"b"), ["a", LITERAL]);
        assert_eq!(texts("a /* b"), ["a"]);
        assert_eq!(texts("a r#\"b\""), ["a", LITERAL]);
    }

    #[test]
    fn lines_count_through_literals_and_comments() {
        let tokens = tokenize("a\n\"b\nc\"\n/*\n*/ d");
        let lines: Vec<_> = tokens.iter().map(|token| token.line).collect();
        assert_eq!(lines, [1, 2, 5]);
    }

    #[test]
    fn items_under_test_conditions_are_marked() {
        for condition in ["#[test]", "#[cfg(test)]", "#[cfg(all(unix, test))]"] {
            let source = format!("{condition}\n#[allow(x)]\nfn t_in([a; 2]: B) {{ t_body }} t_out");
            assert_eq!(names_in_tests(&source), ["t_in", "t_body"], "{condition}");
        }
        let any = "#[cfg(any(test, all(test, unix)))] mod t_in; t_out";
        assert_eq!(names_in_tests(any), ["t_in"]);
        assert_eq!(declared_test_modules(&tokenize(any)), ["t_in"]);
    }

    #[test]
    fn a_marked_field_ends_with_its_struct() {
        let source = "struct A { #[cfg(test)] t_in: u8 }\nfn t_out() {}";
        assert_eq!(names_in_tests(source), ["t_in"]);
    }

    #[test]
    fn other_conditions_are_not_marked() {
        for condition in [
            "#[cfg(not(test))]",
            "#[cfg(any(test, unix))]",
            "#[cfg(feature = \"test\")]",
            "#[cfg_attr(test, allow(x))]",
            "#[cfg(any())]",
        ] {
            let source = format!("{condition} mod t_out;");
            assert!(names_in_tests(&source).is_empty(), "{condition}");
        }
    }

    #[test]
    fn a_condition_on_the_file_marks_it_whole() {
        let source = "//! t_doc\n#![allow(t_x)]\n#![cfg(test)]\nfn t_in() {}";
        assert_eq!(names_in_tests(source), ["t_x", "t_in"]);
        let inside = "fn t_out() {}\nmod a { #![cfg(test)] }";
        assert!(names_in_tests(inside).is_empty());
    }
}
