//! One connection to one server: commands go out, answers come in. What makes connections is a [`Network`].
//!
//! Everything above works with these two, so a test can put simulated servers in their place. [`Sockets`] are the real
//! ones: the library's connections, which know the protocol, TLS and how to log in.

use std::time::Duration;

use redis::{
    Client, Cmd, Connection, ConnectionAddr, ConnectionInfo, ErrorKind, IntoConnectionInfo,
    RedisConnectionInfo, RedisError, ServerError, TlsCertificates, Value, io::tcp::TcpSettings,
};

use crate::spec::{Address, FarSpec, Password, SpecError};

/// Bytes that a connection keeps for what it sends, between two requests.
const KEPT_BYTES: usize = 512 * 1024;
/// The shortest time-out that a socket has.
const SHORTEST: Duration = Duration::from_millis(1);

/// Why a connection was not made, or cannot be used any longer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The server does not let this user in.
    #[error("{0}")]
    LoginRefused(String),
    /// Nobody answers there, or not any longer.
    #[error("{0}")]
    Broken(String),
}

/// A connection. After an error it is of no use.
pub trait Wire: Send {
    /// How long one send or one receive may take from now on.
    ///
    /// # Errors
    /// [`WireError`].
    fn set_patience(&mut self, patience: Duration) -> Result<(), WireError>;

    /// Sends commands. Waits for no answer. May block.
    ///
    /// # Errors
    /// [`WireError`].
    fn send(&mut self, commands: &[&Cmd]) -> Result<(), WireError>;

    /// The next answer, which may be an error of the server: [`Value::ServerError`]. Blocks.
    ///
    /// # Errors
    /// [`WireError`].
    fn receive(&mut self) -> Result<Value, WireError>;
}

/// As what to log in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// At a store: with user and password, to the database.
    Store,
    /// At a Sentinel: without.
    Sentinel,
}

/// What makes connections.
pub trait Network: Send + Sync {
    /// Connects and logs in. Blocks for `patience` at most, but for looking up the name.
    ///
    /// # Errors
    /// [`WireError`].
    fn connect(
        &self,
        to: &Address,
        role: Role,
        patience: Duration,
    ) -> Result<Box<dyn Wire>, WireError>;
}

/// Connections over TCP, with TLS if the spec says so.
pub(crate) struct Sockets {
    user: Option<String>,
    password: Option<Password>,
    db: u32,
    tls: bool,
    /// A certificate as PEM.
    ca: Option<Vec<u8>>,
}

impl Sockets {
    /// Reads the files that the spec names.
    ///
    /// # Errors
    /// [`SpecError`]: one of them cannot be read.
    pub(crate) fn new(spec: &FarSpec) -> Result<Sockets, SpecError> {
        Ok(Sockets {
            user: spec.user.clone(),
            password: spec.find_password()?,
            db: spec.db,
            tls: spec.tls,
            ca: spec.read_ca()?,
        })
    }

    fn client(&self, to: &Address, role: Role) -> Result<Client, RedisError> {
        let host = to.host.clone();
        let address = match self.tls {
            false => ConnectionAddr::Tcp(host, to.port),
            true => ConnectionAddr::TcpTls {
                host,
                port: to.port,
                insecure: false,
                tls_params: None,
            },
        };
        let mut login = RedisConnectionInfo::default().set_skip_set_lib_name();
        if role == Role::Store {
            login = login.set_db(i64::from(self.db));
            if let Some(user) = &self.user {
                login = login.set_username(user);
            }
            if let Some(password) = &self.password {
                login = login.set_password(password.text());
            }
        }
        let info: ConnectionInfo = address
            .into_connection_info()?
            .set_tcp_settings(TcpSettings::default().set_nodelay(true))
            .set_redis_settings(login);
        match &self.ca {
            None => Client::open(info),
            Some(pem) => {
                let certificates = TlsCertificates {
                    client_tls: None,
                    root_cert: Some(pem.clone()),
                };
                Client::build_with_tls(info, certificates)
            }
        }
    }
}

impl Network for Sockets {
    fn connect(
        &self,
        to: &Address,
        role: Role,
        patience: Duration,
    ) -> Result<Box<dyn Wire>, WireError> {
        let patience = patience.max(SHORTEST);
        let connection = self
            .client(to, role)
            .and_then(|client| client.get_connection_with_timeout(patience))
            .map_err(|error| broken(&error))?;
        let mut socket = Socket {
            connection,
            patience: Duration::ZERO,
            out: Vec::new(),
        };
        socket.set_patience(patience)?;
        Ok(Box::new(socket))
    }
}

struct Socket {
    connection: Connection,
    patience: Duration,
    /// The bytes of the commands that are sent.
    out: Vec<u8>,
}

impl Wire for Socket {
    fn set_patience(&mut self, patience: Duration) -> Result<(), WireError> {
        let patience = patience.max(SHORTEST);
        if self.patience != patience {
            let set = self
                .connection
                .set_read_timeout(Some(patience))
                .and_then(|()| self.connection.set_write_timeout(Some(patience)));
            set.map_err(|error| broken(&error))?;
            self.patience = patience;
        }
        Ok(())
    }

    fn send(&mut self, commands: &[&Cmd]) -> Result<(), WireError> {
        self.out.clear();
        self.out.shrink_to(KEPT_BYTES);
        for command in commands {
            command.write_packed_command(&mut self.out);
        }
        let sent = self.connection.send_packed_command(&self.out);
        sent.map_err(|error| broken(&error))
    }

    fn receive(&mut self) -> Result<Value, WireError> {
        let answer = self.connection.recv_response();
        answer.map_err(|error| broken(&error))
    }
}

fn broken(error: &RedisError) -> WireError {
    match error.kind() {
        ErrorKind::AuthenticationFailed | ErrorKind::Server(_) => {
            WireError::LoginRefused(error.to_string())
        }
        _ if error.is_timeout() => WireError::Broken("no answer in time".into()),
        _ => WireError::Broken(error.to_string()),
    }
}

/// What a server says of its error, as it says it.
pub(crate) fn said(error: &ServerError) -> String {
    match error.details() {
        Some(details) => format!("{} {details}", error.code()),
        None => error.code().to_owned(),
    }
}
