//! A server whose devices are all lost says so.

use std::sync::Arc;

use cuzk_budget::Budget;
use cuzk_core::{ColumnMemory, Config, Engine, EngineParts, cpu_backend};
use cuzk_daemon::wire::await_proof_response::Status;
use cuzk_gpu::cpu::CpuBackend;
use cuzk_gpu::{
    Backend, BackendError, CColumn, CircuitSizes, ColumnLayout, DeviceUse, Key, KeyTier, Pending,
    ProveRequest, pending,
};
use cuzk_synth::HintStore;
use tonic::Code;
use tonic_health::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::ends::{becomes, channel};
use crate::support::{Server, refusal, window, within};

/// A device that does nothing any more; its columns are the processor's.
struct Lost(CpuBackend);

impl Backend for Lost {
    fn name(&self) -> &'static str {
        "lost"
    }

    fn device(&self) -> Option<DeviceUse> {
        Some(DeviceUse {
            ordinal: 0,
            name: "Card".to_owned(),
            limit_bytes: 0,
            held_bytes: 0,
        })
    }

    fn c_column(&self) -> CColumn {
        self.0.c_column()
    }

    fn layout(&self, sizes: &CircuitSizes) -> ColumnLayout {
        self.0.layout(sizes)
    }

    fn work_bytes(&self, sizes: &CircuitSizes, key: &Key, tier: KeyTier) -> u64 {
        self.0.work_bytes(sizes, key, tier)
    }

    fn submit(&self, request: ProveRequest) -> Pending {
        let (completion, pending) = pending();
        completion.columns_read(request.columns);
        completion.done(Err(BackendError::DeviceLost { ordinal: 0 }));
        pending
    }
}

fn engine(config: &Config) -> Engine {
    let backend = Lost(cpu_backend(2, &config.tuning).expect("threads"));
    let parts = EngineParts {
        backends: vec![Arc::new(backend)],
        memory: ColumnMemory::heap(Budget::new(4 << 30)),
        hints: HintStore::in_memory(),
    };
    Engine::start(config, parts).expect("a thread")
}

#[tokio::test(flavor = "multi_thread")]
async fn with_every_device_lost_a_server_is_not_ready() {
    let server = Server::start_on(|_| (), engine).await;
    let mut health = HealthClient::new(channel(&server).await);
    becomes(&mut health, ServingStatus::Serving).await;
    assert!(server.page("/metrics").contains("\ncuzk_gpu_workers 1\n"));

    let mut client = server.client().await;
    let answer = within(client.prove(window(1))).await.expect("an end");
    assert_eq!(answer.status(), Status::Failed, "{answer:?}");
    becomes(&mut health, ServingStatus::NotServing).await;
    let page = server.page("/metrics");
    assert!(page.contains("\ncuzk_gpu_workers 0\n"), "{page}");
    assert!(page.contains("\ncuzk_gpu_lost 1\n"), "{page}");

    // Told as what another server may still do.
    let (code, message) = refusal(client.submit(window(2)).await);
    assert_eq!(code, Code::Unavailable);
    assert_eq!(
        message,
        "nothing proves any more: device 0 (Card): device 0 failed earlier and is out of \
         service until the process starts anew"
    );
}
