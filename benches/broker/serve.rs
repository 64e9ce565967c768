//! The broker's process.

use tidegate::broker::{Broker, BrokerConfig, Idle, LimitBehavior};

use crate::{
    duty::{Duty, say},
    link::Wait,
};

/// Messages a queue holds before its producers wait, and producers it may have: each gets a credit
/// of 1,000 at a time.
const QUEUE_MESSAGES_MAX: u64 = 10_000;
const QUEUE_PRODUCERS_MAX: u32 = 10;

/// The same where there are many queues, with one producer each, who would fill the memory before
/// any of them is full.
const MANY_MESSAGES_MAX: u64 = 100;

pub(crate) fn broker(duty: &Duty) {
    let mut config = BrokerConfig::default();
    config.listen.set_port(0);
    config.loops = duty.setting("loops");
    if duty.setting::<Wait>("wait") == Wait::Spin {
        config.idle = Idle::Spin;
    }
    let many = duty.setting::<usize>("queues") > 1;
    config.queue.messages_max = if many { MANY_MESSAGES_MAX } else { QUEUE_MESSAGES_MAX };
    config.queue.producers_max = if many { 1 } else { QUEUE_PRODUCERS_MAX };
    config.queue.limit_behavior = LimitBehavior::FlowControl;
    let broker = Broker::start(config).expect("a broker on free ports");
    say(&broker.jms_address().to_string());
    duty.order();
}
