//! A client for a server of the contract, with requests and proofs as types.
//!
//! ```no_run
//! use cuzk_daemon::client::Client;
//! use cuzk_filecoin::Request;
//!
//! # async fn ask() -> Result<(), Box<dyn std::error::Error>> {
//! let request = Request::from_json(&std::fs::read("wpost.json")?)?;
//! let mut client = Client::connect("127.0.0.1:9820").await?;
//! let job = client.submit(request).await?;
//! let answer = client.wait(&job.job_id, None).await?;
//! println!("{} bytes", answer.proof.len());
//! # Ok(())
//! # }
//! ```

use std::path::Path;
use std::time::Duration;

use cuzk_filecoin::Request;
use tonic::transport::{Channel, Endpoint};

use crate::error::ClientError;
use crate::wire::proving_engine_client::ProvingEngineClient;
use crate::wire::{
    AwaitProofRequest, AwaitProofResponse, CancelProofRequest, EvictSrsRequest, EvictSrsResponse,
    GetMetricsRequest, GetStatusRequest, GetStatusResponse, PreloadSrsRequest, PreloadSrsResponse,
    ProveRequest, SubmitProofResponse, message_of,
};

/// How long a connection may take to come about.
const CONNECT_MAX: Duration = Duration::from_secs(10);

/// A connection to a server. Clones share it.
#[derive(Clone, Debug)]
pub struct Client(ProvingEngineClient<Channel>);

impl Client {
    /// Connects over TCP to `host:port`.
    ///
    /// # Errors
    /// [`ClientError::Address`] and [`ClientError::Connect`].
    pub async fn connect(address: &str) -> Result<Self, ClientError> {
        Self::connect_to(address, format!("http://{address}")).await
    }

    /// Connects over a unix socket.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub async fn connect_socket(path: &Path) -> Result<Self, ClientError> {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let Some(text) = path.to_str() else {
            return Err(ClientError::Address(path.display().to_string()));
        };
        Self::connect_to(text, format!("unix://{text}")).await
    }

    async fn connect_to(address: &str, uri: String) -> Result<Self, ClientError> {
        let endpoint =
            Endpoint::from_shared(uri).map_err(|_| ClientError::Address(address.to_owned()))?;
        let channel = endpoint.connect_timeout(CONNECT_MAX).connect().await;
        let channel = channel.map_err(|source| ClientError::Connect {
            address: address.to_owned(),
            source,
        })?;
        Ok(Self(ProvingEngineClient::new(channel)))
    }

    /// Hands a request over; the job that it became.
    ///
    /// # Errors
    /// [`ClientError::Refused`], as from every call.
    pub async fn submit(&mut self, request: Request) -> Result<SubmitProofResponse, ClientError> {
        let answer = self.0.submit_proof(message_of(request)).await?;
        Ok(answer.into_inner())
    }

    /// Waits for a job's end, or until `wait_max` has passed.
    ///
    /// # Errors
    /// [`ClientError::Refused`] if the job is not known. A job without a proof is an
    /// answer.
    pub async fn wait(
        &mut self,
        job_id: &str,
        wait_max: Option<Duration>,
    ) -> Result<AwaitProofResponse, ClientError> {
        // Zero has a meaning of its own on the wire: no limit.
        let milliseconds = |wait: Duration| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        let message = AwaitProofRequest {
            job_id: job_id.to_owned(),
            timeout_ms: wait_max.map_or(0, |wait| milliseconds(wait).max(1)),
        };
        Ok(self.0.await_proof(message).await?.into_inner())
    }

    /// Hands a request over and waits for the end.
    ///
    /// # Errors
    /// [`ClientError::Refused`] and [`ClientError::Incomplete`].
    pub async fn prove(&mut self, request: Request) -> Result<AwaitProofResponse, ClientError> {
        let message = ProveRequest {
            submit: Some(message_of(request)),
        };
        let answer = self.0.prove(message).await?.into_inner();
        answer.result.ok_or(ClientError::Incomplete("result"))
    }

    /// Gives a job up; whether work on it had begun and not ended.
    ///
    /// # Errors
    /// [`ClientError::Refused`] if the job is not known.
    pub async fn cancel(&mut self, job_id: &str) -> Result<bool, ClientError> {
        let message = CancelProofRequest {
            job_id: job_id.to_owned(),
        };
        Ok(self.0.cancel_proof(message).await?.into_inner().was_running)
    }

    /// What the server holds and does.
    ///
    /// # Errors
    /// [`ClientError::Refused`].
    pub async fn status(&mut self) -> Result<GetStatusResponse, ClientError> {
        Ok(self.0.get_status(GetStatusRequest {}).await?.into_inner())
    }

    /// The counters, as the metrics page has them.
    ///
    /// # Errors
    /// [`ClientError::Refused`].
    pub async fn metrics(&mut self) -> Result<String, ClientError> {
        let answer = self.0.get_metrics(GetMetricsRequest {}).await?;
        Ok(answer.into_inner().prometheus_text)
    }

    /// Loads a key.
    ///
    /// # Errors
    /// [`ClientError::Refused`] if there is none or it cannot be used.
    pub async fn preload(&mut self, circuit_id: &str) -> Result<PreloadSrsResponse, ClientError> {
        let message = PreloadSrsRequest {
            circuit_id: circuit_id.to_owned(),
        };
        Ok(self.0.preload_srs(message).await?.into_inner())
    }

    /// Drops a key that no job uses.
    ///
    /// # Errors
    /// [`ClientError::Refused`] if jobs use it or no circuit has this id.
    pub async fn evict(&mut self, circuit_id: &str) -> Result<EvictSrsResponse, ClientError> {
        let message = EvictSrsRequest {
            circuit_id: circuit_id.to_owned(),
        };
        Ok(self.0.evict_srs(message).await?.into_inner())
    }
}
