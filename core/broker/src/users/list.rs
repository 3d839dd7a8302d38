//! Users and rights as they are listed.
//!
//! Owns how much of a list is given. Lists that are given whole must fit a frame, because their answer cannot say
//! that there is more; what does not fit is refused by name, and read page by page instead.

use metadata::cluster::{User, UserName};
use types::limits;
use wire::Reason;

use crate::action::UserInfo;
use crate::auth::{Operation, Permissions, Role};
use crate::node::Core;

/// Bytes of an answer before its list: envelope and count.
const LIST_BYTES: usize = 6 + 4;
/// Bytes of a string that is there, before its text.
const STRING_BYTES: usize = 1 + 4;
/// Longest name of a role.
const ROLE_BYTES_MAX: usize = "operator".len();

impl Core {
    /// Every user, when `bytes` of all of them fit a frame.
    pub(super) fn all_users(&self, bytes: fn(&UserInfo) -> usize) -> Result<Vec<UserInfo>, Reason> {
        let mut left = self.config.frame_bytes_max.saturating_sub(LIST_BYTES);
        let mut users = Vec::new();
        for (name, user) in self.meta.cluster().users() {
            let user = info(name, user);
            left = left.checked_sub(bytes(&user)).ok_or(Reason::Unsupported)?;
            users.push(user);
        }
        Ok(users)
    }

    /// Some users after a name, and whether there are more. At least one when there is one.
    pub(super) fn some_users(&self, after: Option<&[u8]>, max: u32) -> (Vec<UserInfo>, bool) {
        let max = wire::request::list_max_effective(max);
        let mut left = self.config.frame_bytes_max.saturating_sub(LIST_BYTES + 1);
        // Names are ASCII: what is not text lies before or behind as its readable beginning does.
        let after = after.map(|after| match std::str::from_utf8(after) {
            Ok(after) => after,
            Err(error) => std::str::from_utf8(&after[..error.valid_up_to()]).unwrap_or_default(),
        });
        let (mut users, mut more) = (Vec::new(), false);
        // No name is empty.
        for (name, user) in self.meta.cluster().users_after(after.unwrap_or_default()) {
            let user = info(name, user);
            let bytes = user_and_role_bytes(&user);
            if users.len() >= max as usize || (bytes > left && !users.is_empty()) {
                more = true;
                break;
            }
            left = left.saturating_sub(bytes);
            users.push(user);
        }
        (users, more)
    }

    /// A user's rights, when all of them fit a frame.
    pub(super) fn rights_of(&self, user: &[u8]) -> Result<Vec<(&'static str, String)>, Reason> {
        let user = std::str::from_utf8(user).unwrap_or_default();
        let mut left = self.config.frame_bytes_max.saturating_sub(LIST_BYTES);
        let mut rights = Vec::new();
        for (operation, pattern) in self.meta.cluster().grants_of(user) {
            let (operation, pattern) = (token(operation), pattern.to_string());
            let bytes = 2 * STRING_BYTES + operation.len() + pattern.len();
            left = left.checked_sub(bytes).ok_or(Reason::Unsupported)?;
            rights.push((operation, pattern));
        }
        Ok(rights)
    }
}

const _: () = {
    // The smallest frame holds the largest user, so that a page always goes on.
    let permissions = "admin".len() + "produce".len() + "consume".len() + 3 * STRING_BYTES;
    let user = STRING_BYTES + limits::USER_NAME_BYTES_MAX + STRING_BYTES + ROLE_BYTES_MAX + 4 + permissions;
    assert!(LIST_BYTES + 1 + user <= limits::FRAME_BYTES_MIN);
};

fn info(name: &UserName, user: &User) -> UserInfo {
    UserInfo { name: name.shared(), permissions: user.permissions, role: user.role }
}

/// Bytes of a user as it is listed.
pub(super) fn user_bytes(user: &UserInfo) -> usize {
    let Permissions { admin, produce, consume } = user.permissions;
    let all = [("admin", admin), ("produce", produce), ("consume", consume)];
    let given = all.iter().filter(|(_, given)| *given);
    STRING_BYTES + user.name.len() + 4 + given.map(|(name, _)| STRING_BYTES + name.len()).sum::<usize>()
}

/// Bytes of a user as it is listed with its role.
pub(super) fn user_and_role_bytes(user: &UserInfo) -> usize {
    let role = match user.role {
        None => 1,
        Some(Role::Viewer | Role::Operator | Role::Admin) => STRING_BYTES + ROLE_BYTES_MAX,
    };
    user_bytes(user) + role
}

fn token(operation: Operation) -> &'static str {
    match operation {
        Operation::Produce => "produce",
        Operation::Consume => "consume",
    }
}
