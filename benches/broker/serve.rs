//! The broker's process.

use tidegate::broker::{Broker, BrokerConfig, Idle, LimitBehavior};

use crate::{
    duty::{Duty, say},
    link::Wait,
};

/// Messages a queue holds before its producers wait, and producers it may have: each gets a credit
/// of 1,000 at a time.
const QUEUE_MESSAGES_MAX: u64 = 4_000;
const QUEUE_PRODUCERS_MAX: u32 = 4;

pub(crate) fn broker(duty: &Duty) {
    let mut config = BrokerConfig::default();
    config.listen.set_port(0);
    config.loops = duty.setting("loops");
    if duty.setting::<Wait>("wait") == Wait::Spin {
        config.idle = Idle::Spin;
    }
    config.queue.messages_max = QUEUE_MESSAGES_MAX;
    config.queue.producers_max = QUEUE_PRODUCERS_MAX;
    config.queue.limit_behavior = LimitBehavior::FlowControl;
    let broker = Broker::start(config).expect("a broker on free ports");
    say(&broker.jms_address().to_string());
    duty.order();
}
