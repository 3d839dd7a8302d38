//! Storage policies as a client defines, binds and reads them.
//!
//! What a policy says is JSON text in both directions; which settings there are is the broker's to know.

use bytes::Bytes;
use wire::{Payload, Request};

use super::Client;
use super::admin::text;
use super::client::mismatch;
use crate::Error;

impl Client {
    /// Defines a storage policy, or puts another in its place: a JSON object of settings. What it leaves out is as the
    /// cluster has it, null switches a rule off.
    pub async fn define_policy(&self, name: &str, json: &str) -> Result<(), Error> {
        let json = Bytes::copy_from_slice(json.as_bytes());
        self.done(Request::DefinePolicy { name: text(name), json }).await
    }

    /// Removes a storage policy; refused while a topic points at it, unless forced.
    pub async fn delete_policy(&self, name: &str, force: bool) -> Result<(), Error> {
        self.done(Request::DeletePolicy { name: text(name), force }).await
    }

    /// Points a topic at a storage policy, or at none.
    pub async fn bind_policy(&self, topic: &str, name: Option<&str>) -> Result<(), Error> {
        self.done(Request::BindTopicPolicy { topic: text(topic), name: name.and_then(text) }).await
    }

    /// What holds for a topic and where each setting comes from, as JSON text.
    pub async fn topic_policy(&self, topic: &str) -> Result<Bytes, Error> {
        let payload = self.call(Request::GetPolicy { topic: text(topic) }).await?;
        let Payload::Policies(json) = payload else { return Err(mismatch()) };
        Ok(json)
    }

    /// Every storage policy in the order of names, as JSON text.
    pub async fn list_policies(&self) -> Result<Bytes, Error> {
        let Payload::Policies(json) = self.call(Request::ListPolicies).await? else { return Err(mismatch()) };
        Ok(json)
    }
}
