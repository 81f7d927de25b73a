//! The part of OpenAI's API that is spoken: a streaming completion, and its chunks.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One of the two endpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Api {
    /// `/v1/completions`: the prompt is the text as it is.
    Completions,
    /// `/v1/chat/completions`: the prompt is a message, which the server puts into its template.
    Chat,
}

impl Api {
    /// Its path below `/v1`.
    pub fn path(self) -> &'static str {
        match self {
            Api::Completions => "completions",
            Api::Chat => "chat/completions",
        }
    }
}

/// The request of a completion.
#[derive(Debug, Clone, PartialEq)]
pub struct Completion<'a> {
    /// The endpoint.
    pub api: Api,
    /// Name of the model, as the server calls it.
    pub model: &'a str,
    /// The prompt.
    pub prompt: &'a str,
    /// Most tokens of the output.
    pub max_tokens: u32,
    /// Ask that the end token does not end the output. It is an extension of vLLM and SGLang.
    pub ignore_eos: bool,
    /// Ask for token counts, per chunk and in the end.
    pub with_usage: bool,
}

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    messages: Option<[Message<'a>; 1]>,
    max_tokens: u32,
    temperature: f64,
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream_options: Option<StreamOptions>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    ignore_eos: bool,
}

#[derive(Serialize)]
struct Message<'a> {
    role: &'static str,
    content: &'a str,
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
    continuous_usage_stats: bool,
}

impl Completion<'_> {
    /// The body of the request.
    pub fn body(&self) -> Vec<u8> {
        let is_chat = self.api == Api::Chat;
        let body = Body {
            model: self.model,
            prompt: (!is_chat).then_some(self.prompt),
            messages: is_chat.then_some([Message { role: "user", content: self.prompt }]),
            max_tokens: self.max_tokens,
            temperature: 0.0,
            stream: true,
            stream_options: self
                .with_usage
                .then_some(StreamOptions { include_usage: true, continuous_usage_stats: true }),
            ignore_eos: self.ignore_eos,
        };
        serde_json::to_vec(&body).unwrap_or_default()
    }
}

/// A chunk of a stream, or a whole completion of a server that does not stream.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Chunk {
    pub(crate) choices: Option<Vec<Choice>>,
    pub(crate) usage: Option<Usage>,
    pub(crate) error: Option<Value>,
    object: Option<String>,
    message: Option<Value>,
}

/// A choice of a chunk.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Choice {
    #[serde(default)]
    pub(crate) index: u64,
    text: Option<String>,
    #[serde(alias = "message")]
    delta: Option<Delta>,
    pub(crate) finish_reason: Option<String>,
}

/// The part of the output in a chunk of a chat. Reasoning and calls of tools are tokens as well.
#[derive(Debug, Default, Deserialize)]
struct Delta {
    role: Option<String>,
    content: Option<String>,
    refusal: Option<String>,
    reasoning_content: Option<String>,
    reasoning: Option<String>,
    tool_calls: Option<Vec<Value>>,
}

impl Choice {
    /// The text that it adds; empty for calls of tools.
    pub(crate) fn text(&self) -> String {
        let delta = self.delta.as_ref();
        let parts = [
            self.text.as_deref(),
            delta.and_then(|of| of.reasoning_content.as_deref().or(of.reasoning.as_deref())),
            delta.and_then(|of| of.content.as_deref()),
            delta.and_then(|of| of.refusal.as_deref()),
        ];
        parts.into_iter().flatten().collect()
    }

    /// Whether it has anything of the output.
    pub(crate) fn has_output(&self) -> bool {
        let calls = self.delta.as_ref().and_then(|of| of.tool_calls.as_ref());
        !self.text().is_empty() || calls.is_some_and(|calls| !calls.is_empty())
    }

    /// Whether it is the event by which a chat begins, which is no token.
    pub(crate) fn is_role(&self) -> bool {
        self.delta.as_ref().is_some_and(|of| of.role.is_some()) && !self.has_output()
    }
}

/// Token counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct Usage {
    pub(crate) prompt_tokens: Option<u64>,
    pub(crate) completion_tokens: Option<u64>,
    prompt_tokens_details: Option<PromptDetails>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
struct PromptDetails {
    cached_tokens: Option<u64>,
}

impl Usage {
    /// Prompt tokens out of the prefix cache, where the server reports them.
    pub(crate) fn cached_tokens(&self) -> Option<u64> {
        self.prompt_tokens_details?.cached_tokens
    }
}

impl Chunk {
    /// The error that it is, in words.
    pub(crate) fn error(&self) -> Option<String> {
        let message = |of: &Value| match of.get("message").unwrap_or(of) {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        match (&self.error, self.object.as_deref()) {
            (Some(error), _) if !error.is_null() => Some(message(error)),
            (_, Some("error")) => Some(self.message.as_ref().map_or_else(String::new, message)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_those_of_the_api() {
        let of =
            |api, with_usage| Completion { api, model: "m", prompt: "p", max_tokens: 8, ignore_eos: false, with_usage };
        let json = |of: Completion<'_>| serde_json::from_slice::<Value>(&of.body()).unwrap();
        assert_eq!(
            json(of(Api::Completions, false)),
            serde_json::json!({"model": "m", "prompt": "p", "max_tokens": 8, "temperature": 0.0, "stream": true})
        );
        let chat = json(of(Api::Chat, true));
        assert_eq!(chat["messages"], serde_json::json!([{"role": "user", "content": "p"}]));
        assert_eq!(chat["stream_options"], serde_json::json!({"include_usage": true, "continuous_usage_stats": true}));
        assert_eq!((chat.get("prompt"), chat.get("ignore_eos")), (None, None));
        let forced = Completion { ignore_eos: true, ..of(Api::Chat, false) };
        assert_eq!(json(forced)["ignore_eos"], true);
    }

    #[test]
    fn chunks_have_text_roles_and_errors() {
        let choice = |text: &str| {
            let chunk: Chunk = serde_json::from_str(text).unwrap();
            chunk.choices.unwrap().remove(0)
        };
        assert_eq!(choice(r#"{"choices": [{"index": 0, "text": "a"}]}"#).text(), "a");
        let role = choice(r#"{"choices": [{"delta": {"role": "assistant", "content": ""}}]}"#);
        assert!(role.is_role() && !role.has_output());
        // Some servers put the role into every chunk.
        assert!(!choice(r#"{"choices": [{"delta": {"role": "assistant", "content": "a"}}]}"#).is_role());
        assert!(choice(r#"{"choices": [{"delta": {"reasoning_content": "hm"}}]}"#).has_output());
        assert!(choice(r#"{"choices": [{"delta": {"tool_calls": [{"index": 0}]}}]}"#).has_output());
        for (text, expected) in [
            (r#"{"error": {"message": "no memory", "code": 500}}"#, Some("no memory")),
            (r#"{"error": "no"}"#, Some("no")),
            (r#"{"object": "error", "message": "late"}"#, Some("late")),
            (r#"{"error": null, "choices": []}"#, None),
        ] {
            assert_eq!(serde_json::from_str::<Chunk>(text).unwrap().error().as_deref(), expected);
        }
    }
}
