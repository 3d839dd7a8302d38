//! `malachi user`: who may log in.

use std::net::IpAddr;
use std::process::ExitCode;

use client::{UserV2, features};
use serde_json::{Value, json};

use crate::connect::{self, Connect};
use crate::print;

/// What to do with users.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// List users and what they may do
    List(List),
    /// Make a user
    Create(Create),
    /// Set a user's password
    Passwd(Passwd),
    /// Remove a user, its rights and its sessions
    Delete(Delete),
    /// Give a user a role on the operator's surfaces
    Role(Role),
    /// End the lock that failed logins have put on a user
    Unlock(Unlock),
}

/// How to list them.
#[derive(Debug, clap::Args)]
pub(crate) struct List {
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: Connect,
}

/// A user to make.
#[derive(Debug, clap::Args)]
pub(crate) struct Create {
    /// Name
    name: String,
    /// Password; - reads it from standard input
    password: String,
    /// What it may do: admin, produce, consume
    #[arg(long, value_delimiter = ',', default_value = "produce,consume")]
    perms: Vec<String>,
    /// Its role on the operator's surfaces: viewer, operator or admin
    #[arg(long)]
    role: Option<String>,
    #[command(flatten)]
    connect: Connect,
}

/// A password to set.
#[derive(Debug, clap::Args)]
pub(crate) struct Passwd {
    /// Name
    name: String,
    /// New password; - reads it from standard input
    password: String,
    #[command(flatten)]
    connect: Connect,
}

/// A user to remove.
#[derive(Debug, clap::Args)]
pub(crate) struct Delete {
    /// Name
    name: String,
    #[command(flatten)]
    connect: Connect,
}

/// A role to give.
#[derive(Debug, clap::Args)]
pub(crate) struct Role {
    /// Name
    name: String,
    /// viewer, operator or admin; none takes it away
    role: String,
    #[command(flatten)]
    connect: Connect,
}

/// A lock to end.
#[derive(Debug, clap::Args)]
pub(crate) struct Unlock {
    /// Name
    name: String,
    /// Only for logins from this address
    #[arg(long, value_name = "ADDRESS")]
    ip: Option<IpAddr>,
    #[command(flatten)]
    connect: Connect,
}

pub(crate) async fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::List(args) => list(args).await,
        Command::Create(args) => create(args).await,
        Command::Passwd(args) => passwd(args).await,
        Command::Delete(args) => delete(args).await,
        Command::Role(args) => role(args).await,
        Command::Unlock(args) => unlock(args).await,
    }?;
    Ok(ExitCode::SUCCESS)
}

/// A user as it is listed, whichever operation listed it.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Listed {
    name: String,
    permissions: Vec<String>,
    role: Option<String>,
}

async fn list(args: List) -> anyhow::Result<()> {
    let client = args.connect.open(connect::ADMIN).await?;
    let text = |string: &client::Str| print::name(string.as_deref().unwrap_or_default());
    let texts = |strings: &[client::Str]| strings.iter().map(text).collect();
    let features = client.server().map_or(0, |server| server.features);
    let with_roles = |users: Vec<UserV2>| {
        let listed = users.iter().map(|user| Listed {
            name: text(&user.username),
            permissions: texts(&user.permissions),
            role: user.role.as_ref().map(|role| print::name(role)),
        });
        listed.collect()
    };
    let listed: Result<Vec<Listed>, client::Error> = if features & features::USER_ADMIN != 0 {
        client.users().await.map(with_roles)
    } else if features & features::ROLES != 0 {
        client.list_users_v2().await.map(with_roles)
    } else {
        client.list_users().await.map(|users| {
            let listed = users.iter().map(|user| Listed {
                name: text(&user.username),
                permissions: texts(&user.permissions),
                role: None,
            });
            listed.collect()
        })
    };
    let mut users = listed.map_err(|error| args.connect.explain(error))?;
    users.sort();
    show(&users, args.json)
}

fn show(users: &[Listed], as_json: bool) -> anyhow::Result<()> {
    if as_json {
        let user =
            |user: &Listed| json!({ "user": user.name, "permissions": user.permissions, "role": user.role });
        return Ok(print::line(&users.iter().map(user).collect::<Value>())?);
    }
    let separator = print::separator();
    if users.is_empty() {
        return print::nothing("(no users)");
    }
    for user in users {
        let name = print::printable(&user.name);
        let permissions = print::printable(&user.permissions.join(", "));
        let role = user
            .role
            .as_ref()
            .map_or_else(String::new, |role| format!("{separator}role={}", print::printable(role)));
        print::line(&format_args!("{name}{separator}[{permissions}]{role}"))?;
    }
    Ok(())
}

async fn create(args: Create) -> anyhow::Result<()> {
    let password = connect::secret(&args.password)?;
    let permissions: Vec<&str> =
        args.perms.iter().map(|item| item.trim()).filter(|p| !p.is_empty()).collect();
    let client = args.connect.open(connect::ADMIN).await?;
    let created = client.create_user(&args.name, &password, &permissions).await;
    created.map_err(|error| args.connect.explain(error))?;
    let name = &args.name;
    print::line(&format_args!("created user \"{name}\" [{}]", permissions.join(", ")))?;
    if let Some(role) = &args.role {
        // Two requests: where roles are not allowed yet, the user is there without one.
        client.set_role(name, Some(role)).await.map_err(|error| args.connect.explain(error))?;
        print::line(&format_args!("set role of \"{name}\" to {role}"))?;
    }
    Ok(())
}

async fn passwd(args: Passwd) -> anyhow::Result<()> {
    let password = connect::secret(&args.password)?;
    let client = args.connect.open(connect::ADMIN).await?;
    let changed = client.change_password(&args.name, &password).await;
    changed.map_err(|error| args.connect.explain(error))?;
    Ok(print::line(&format_args!("changed password for \"{}\"", args.name))?)
}

async fn delete(args: Delete) -> anyhow::Result<()> {
    let client = args.connect.open(connect::ADMIN).await?;
    client.delete_user(&args.name).await.map_err(|error| args.connect.explain(error))?;
    Ok(print::line(&format_args!("deleted user \"{}\"", args.name))?)
}

async fn role(args: Role) -> anyhow::Result<()> {
    let client = args.connect.open(connect::ADMIN).await?;
    let role = (args.role != "none").then_some(&args.role[..]);
    client.set_role(&args.name, role).await.map_err(|error| args.connect.explain(error))?;
    Ok(print::line(&format_args!("set role of \"{}\" to {}", args.name, args.role))?)
}

async fn unlock(args: Unlock) -> anyhow::Result<()> {
    let client = args.connect.open(connect::ADMIN).await?;
    let addresses = client.unlock_user(&args.name, args.ip).await;
    let addresses = addresses.map_err(|error| args.connect.explain(error))?;
    Ok(print::line(&format_args!("unlocked \"{}\" ({addresses} addresses)", args.name))?)
}
