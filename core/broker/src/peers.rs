//! What happens between this node and others: to whom it goes.
//!
//! Owns nothing. What concerns copies, records and how far readers may go is this crate's; everything else is the
//! metadata's.

use peer::Message;
use types::NodeId;

use crate::event::{AskId, PeerEvent};
use crate::node::Node;

impl Node {
    /// Something happened between this node and another.
    pub(crate) fn heard_of(&mut self, node: NodeId, event: PeerEvent) {
        match event {
            PeerEvent::Up | PeerEvent::Down => {
                let up = matches!(event, PeerEvent::Up);
                self.core.peer(node, event);
                self.parted(node);
                self.follower_heard(node, up);
                self.heal_heard(node, up);
            }
            PeerEvent::Asked { call, message: Message::Copy(of) } => self.serve_copy(node, call, of),
            PeerEvent::Asked { call, message: Message::Append(append) } => {
                self.append_for(node, call, append)
            }
            PeerEvent::Asked { call, message: Message::Watch(watch) } => self.watch_for(node, call, watch),
            PeerEvent::Asked { call, message: Message::Forward(forward) } => {
                self.explain_for(node, call, forward);
            }
            PeerEvent::Asked { call, message: Message::Attend(members) } => {
                self.attend_for(node, call, members)
            }
            PeerEvent::Asked { call, message: Message::CommitAs(commit) } => {
                self.commit_for(node, call, commit)
            }
            PeerEvent::Asked { call, message: Message::Members(key) } => self.members_for(node, call, &key),
            PeerEvent::Said(Message::Assigned(assigned)) => self.heard_assigned(&assigned),
            PeerEvent::Said(Message::Loads(loads)) => self.heard_loads(loads),
            PeerEvent::Answered { ask, message } if self.attending.has_asked(ask) => {
                self.members_answered(ask, Some(message));
            }
            PeerEvent::Unanswered { ask } if self.attending.has_asked(ask) => {
                self.members_answered(ask, None)
            }
            PeerEvent::Answered { ask, message } if self.is_about_records(ask) => {
                self.records_answered(ask, Some(message));
            }
            PeerEvent::Unanswered { ask } if self.is_about_records(ask) => self.records_answered(ask, None),
            PeerEvent::Said(_)
            | PeerEvent::Asked { .. }
            | PeerEvent::Answered { .. }
            | PeerEvent::Unanswered { .. }
            | PeerEvent::Seen { .. } => self.core.peer(node, event),
        }
    }

    fn parted(&mut self, node: NodeId) {
        self.core.copies_parted(node);
        self.outlets_parted(node);
        self.outlets.look_soon(self.core.now);
        self.watches_parted(node);
        self.members_parted(node);
        self.explains_parted(node);
        self.watches.retry_soon(self.core.now);
    }

    fn is_about_records(&self, ask: AskId) -> bool {
        self.core.copies.has_asked(ask)
            || self.outlets.has_asked(ask)
            || self.watches.has_asked(ask)
            || self.explains.has_asked(ask)
    }

    /// An answer of another kind than was asked for is none.
    fn records_answered(&mut self, ask: AskId, message: Option<Message>) {
        if self.outlets.has_asked(ask) {
            let reply = match message {
                Some(Message::AppendReply(reply)) => Some(reply),
                Some(_) | None => None,
            };
            return self.outlet_answered(ask, reply);
        }
        if self.watches.has_asked(ask) {
            let reply = match message {
                Some(Message::WatchReply(reply)) => Some(reply),
                Some(_) | None => None,
            };
            return self.watch_answered(ask, reply);
        }
        if self.explains.has_asked(ask) {
            let reply = match message {
                Some(Message::ForwardReply(reply)) => Some(reply),
                Some(_) | None => None,
            };
            return self.explain_answered(ask, reply);
        }
        let reply = match message {
            Some(Message::CopyReply(reply)) => Some(reply),
            Some(_) | None => None,
        };
        self.core.copy_replied(ask, reply);
    }
}
