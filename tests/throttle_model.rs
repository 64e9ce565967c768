//! Throttling against a plain model, and the scenarios that hurt elsewhere, from outside.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test program")]

use std::time::Duration;

use proptest::prelude::{Just, Strategy, prop_assert, prop_assert_eq, prop_oneof, proptest};
use tidegate::throttle::{
    ChannelSettings, Factor, Indication, JobController, JobEvent, StressPolicy, StressSettings,
    Throttle,
};

const DEPTH_MOST: u128 = 134_217_727;

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn policy(settings: &[(&str, &str)]) -> StressPolicy {
    let mut policy = StressSettings::default();
    for (name, value) in settings {
        assert_eq!(policy.set(name, value), Ok(true), "{name}");
    }
    policy.build().unwrap()
}

fn throttle(policy: StressPolicy, depth: u32, limit: u32) -> Throttle {
    Throttle::new(policy, ChannelSettings::new(depth, limit).unwrap())
}

fn depth_and_limit(throttle: &Throttle) -> (u32, u32) {
    throttle.read(|state| (state.depth(), state.job_limit()))
}

#[test]
fn a_clock_that_steps_back_does_no_harm() {
    let throttle = throttle(policy(&[]), 10, 7);
    assert!(matches!(throttle.stress(s(1000)), Indication::Raised(_)));
    assert_eq!(throttle.stress(s(400)), Indication::Ignored);
    assert_eq!(throttle.tick(s(400)), None);
    assert_eq!(throttle.stress(Duration::from_millis(999_999)), Indication::Ignored);
    assert_eq!(depth_and_limit(&throttle), (50, 5));
    assert!(throttle.tick(s(u64::MAX)).is_some());
    assert_eq!(depth_and_limit(&throttle), (10, 7));
    assert_eq!(throttle.stress(s(0)), Indication::Ignored);
    assert!(matches!(throttle.stress(s(1061)), Indication::Raised(_)));
    let mut now = 1061;
    while throttle.read(|state| state.level()) > 0 {
        now += 1;
        throttle.tick(s(now));
        assert!(now <= 1061 + 120, "it never came back");
    }
    assert_eq!(depth_and_limit(&throttle), (10, 7));
}

/// Depth 10, factor 3, limit 7, two jobs less: at the floor after three steps.
fn at_the_floor(settings: &[(&str, &str)], every: u64) -> Throttle {
    let mut all = vec![("job_controller.stressfactor", "3")];
    all.extend_from_slice(settings);
    let throttle = throttle(policy(&all), 10, 7);
    for step in 0..3 {
        assert!(matches!(throttle.stress(s(step * every)), Indication::Raised(_)));
    }
    assert_eq!(depth_and_limit(&throttle), (270, 1));
    assert_eq!(throttle.state().generation(), 3);
    throttle
}

#[test]
fn an_idle_channel_does_not_stay_throttled() {
    let throttle = at_the_floor(&[], 60);
    let mut seen = Vec::new();
    for now in 120..1000 {
        if let Some(change) = throttle.tick(s(now)) {
            assert_eq!(change.after.generation(), change.before.generation() + 1);
            seen.push((now, change.after.depth(), change.after.job_limit()));
        }
    }
    assert_eq!(seen, [(240, 90, 3), (360, 30, 5), (480, 10, 7)]);
}

#[test]
fn ignored_indications_keep_the_count_rule_quiet() {
    let throttle = at_the_floor(
        &[("stressblackout", "900"), ("stresstime", "120"), ("unstresscount", "10")],
        900,
    );
    let mut seen = Vec::new();
    for now in 1801..2500 {
        throttle.processed(100);
        if now % 30 == 0 {
            assert_eq!(throttle.stress(s(now)), Indication::Ignored);
        }
        if throttle.tick(s(now)).is_some() {
            seen.push(now);
        }
    }
    // By time alone, 120 s after each change. Without the indications the count would have brought
    // the second and third right after the first.
    assert_eq!(seen, [1920, 2040, 2160]);
}

#[test]
fn the_count_rule_gives_one_step_when_messages_and_quiet_meet() {
    let throttle = at_the_floor(&[("unstresscount", "1000")], 60);
    throttle.processed(5000);
    assert_eq!(throttle.tick(s(200)), None, "messages without quiet");
    assert!(throttle.tick(s(240)).is_some(), "by time");
    throttle.processed(999);
    assert_eq!(throttle.tick(s(250)), None, "quiet without messages");
    throttle.processed(1);
    let change = throttle.tick(s(250)).unwrap();
    assert_eq!((change.before.depth(), change.after.depth()), (90, 30));
    assert_eq!(throttle.tick(s(250)), None, "one step");
}

#[test]
fn from_the_cap_the_way_back_ends_exactly_as_configured() {
    let throttle = throttle(policy(&[("stressfactor", "3"), ("stressblackout", "0")]), 10, 7);
    while throttle.state().depth() < 134_217_727 {
        throttle.stress(s(0));
    }
    let generation = throttle.state().generation();
    assert_eq!(throttle.stress(s(0)), Indication::Held);
    assert_eq!(throttle.state().generation(), generation);
    let mut changes = 0;
    for now in (120..).step_by(120) {
        let Some(change) = throttle.tick(s(now)) else { break };
        changes += 1;
        assert!(change.after.depth() >= 10 && change.after.job_limit() <= 7);
        assert_eq!(change.after.generation(), generation + changes);
    }
    assert_eq!(depth_and_limit(&throttle), (10, 7));
}

#[test]
fn bad_settings_are_refused_with_setting_value_and_range() {
    for (depth, limit, setting) in [("0", "7", "threaddepth"), ("10", "0", "job_limit")] {
        let error = ChannelSettings::parse(depth, limit).unwrap_err();
        assert_eq!((error.setting(), error.value()), (setting, "0"));
        assert!(error.allowed().starts_with("1 to "), "{error}");
    }
    for factor in ["0", "0.5", "-1"] {
        let mut settings = StressSettings::default();
        let error = settings.set("job_controller.stressfactor", factor).unwrap_err();
        assert_eq!(error.setting(), "job_controller.stressfactor");
        assert_eq!(error.value(), factor);
        assert!(error.to_string().contains("1 to 134217727"), "{error}");
    }
}

#[test]
fn the_job_limit_never_falls_below_one() {
    let throttle = throttle(policy(&[("stressjobs", "5"), ("stressblackout", "0")]), 10, 2);
    for _ in 0..5 {
        throttle.stress(s(0));
        assert_eq!(throttle.state().job_limit(), 1);
        for backlog in [1, 10, 11, 1 << 63] {
            assert_eq!(throttle.wanted(backlog), 1);
        }
    }
}

#[test]
fn a_channel_of_the_controller_goes_through_an_overload_and_back() {
    let mut controller = JobController::new(policy(&[]));
    controller.add_channel("store", ChannelSettings::new(10, 7).unwrap()).unwrap();
    controller.handle_backlog("store", 100_000).unwrap();
    let mut jobs: Vec<u64> = Vec::new();
    let mut most = Vec::new();
    for now in 0..600 {
        if now < 180 {
            let _indication = controller.handle_stress("store", s(now)).unwrap();
        }
        controller.handle_tick(s(now));
        while let Some(event) = controller.poll_event() {
            if let JobEvent::Start { jobs: count, generation, .. } = event {
                jobs.extend((0..count).map(|_| generation));
            }
        }
        // Jobs of older generations leave at the end of their second.
        let generation = controller.throttle("store").unwrap().state().generation();
        let (stay, leave): (Vec<_>, Vec<_>) = jobs.iter().partition(|job| **job == generation);
        for job in leave {
            controller.handle_job_ended("store", job).unwrap();
        }
        jobs = stay;
        assert!(jobs.len() <= 7);
        most.push(jobs.len());
    }
    assert_eq!((most[59], most[119], most[179]), (5, 3, 1));
    assert_eq!((most[279], most[400], most[599]), (3, 5, 7));
}

/// The same rules in the most obvious way: wide numbers, one thread, one step after another.
#[derive(Debug)]
struct Plain {
    configured: (u128, u128),
    depth: u128,
    limit: u128,
    generation: u64,
    changed: i128,
    heard: Option<i128>,
    indicated: Option<i128>,
    processed: u128,
    processed_then: u128,
    rules: Rules,
}

#[derive(Debug, Clone)]
struct Rules {
    blackout: u64,
    stress_time: u64,
    /// Thousandths.
    factor: u64,
    jobs: u32,
    unstress_factor: u64,
    unstress_jobs: u32,
    count: u64,
}

impl Plain {
    fn stress(&mut self, now: i128) -> &'static str {
        let passed = |then: i128| (now - then).max(0);
        self.indicated = self.indicated.max(Some(now));
        if self.heard.is_some_and(|heard| passed(heard) < self.rules.blackout.into()) {
            return "ignored";
        }
        let before = (self.depth, self.limit);
        let product = self.depth * u128::from(self.rules.factor);
        self.depth = (product / 1000 + u128::from(!product.is_multiple_of(1000))).min(DEPTH_MOST);
        self.limit = self.limit.saturating_sub(self.rules.jobs.into()).max(1);
        self.changed = now;
        self.heard = Some(now);
        self.indicated = Some(now);
        self.processed_then = self.processed;
        if (self.depth, self.limit) == before {
            return "held";
        }
        self.generation += 1;
        "raised"
    }

    fn tick(&mut self, now: i128) -> bool {
        if (self.depth, self.limit) == self.configured {
            return false;
        }
        let passed = |then: i128| (now - then).max(0);
        let stress_time = i128::from(self.rules.stress_time);
        let mut steps = if stress_time == 0 { 1 } else { passed(self.changed) / stress_time };
        let enough = self.processed - self.processed_then >= self.rules.count.into();
        let quiet = self.indicated.is_none_or(|then| passed(then) >= stress_time);
        if steps == 0 && enough && quiet {
            steps = 1;
        }
        if steps == 0 {
            return false;
        }
        for _ in 0..steps {
            let lower = self.depth * 1000 / u128::from(self.rules.unstress_factor);
            self.depth = lower.max(self.configured.0);
            self.limit = (self.limit + u128::from(self.rules.unstress_jobs)).min(self.configured.1);
        }
        self.changed = now;
        self.processed_then = self.processed;
        self.generation += 1;
        true
    }
}

#[derive(Debug, Clone)]
enum Step {
    Stress(i64),
    Tick(i64),
    Processed(u64),
}

fn rules() -> impl Strategy<Value = Rules> {
    let factor = || prop_oneof![Just(5000_u64), 1001_u64..4000, Just(134_217_727_000)];
    let time = || prop_oneof![Just(0_u64), 1_u64..300];
    (time(), time(), factor(), 0_u32..4, factor(), 1_u32..4, 0_u64..200).prop_map(
        |(blackout, stress_time, factor, jobs, unstress_factor, unstress_jobs, count)| Rules {
            blackout,
            stress_time,
            factor,
            jobs,
            unstress_factor,
            unstress_jobs,
            count,
        },
    )
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    // Time passes by so many seconds, and now and then goes back.
    let pass = || prop_oneof![8 => 0_i64..100, 1 => 100_i64..2000, 1 => -500_i64..0];
    let step = prop_oneof![
        3 => pass().prop_map(Step::Stress),
        3 => pass().prop_map(Step::Tick),
        2 => (0_u64..150).prop_map(Step::Processed),
    ];
    proptest::collection::vec(step, 0..80)
}

proptest! {
    #[test]
    fn a_throttle_does_what_its_plain_model_does(
        rules in rules(),
        depth in prop_oneof![1_u32..50, 134_217_000_u32..=134_217_727],
        limit in 1_u32..12,
        steps in steps(),
    ) {
        let mut settings = StressSettings::default();
        settings
            .blackout(s(rules.blackout))
            .stress_time(s(rules.stress_time))
            .factor(Factor::from_thousandths(rules.factor).unwrap())
            .jobs(rules.jobs)
            .unstress_factor(Factor::from_thousandths(rules.unstress_factor).unwrap())
            .unstress_jobs(rules.unstress_jobs)
            .unstress_count(rules.count);
        let throttle = throttle(settings.build().unwrap(), depth, limit);
        let configured = (depth.into(), limit.into());
        let mut plain = Plain {
            configured,
            depth: configured.0,
            limit: configured.1,
            generation: 0,
            changed: 0,
            heard: None,
            indicated: None,
            processed: 0,
            processed_then: 0,
            rules,
        };
        let mut now = 0_i64;
        for step in steps {
            match step {
                Step::Stress(passed) => {
                    now = (now + passed).max(0);
                    let became = match throttle.stress(s(now.unsigned_abs())) {
                        Indication::Ignored => "ignored",
                        Indication::Held => "held",
                        Indication::Raised(_) => "raised",
                        _ => "new",
                    };
                    prop_assert_eq!(became, plain.stress(now.into()));
                }
                Step::Tick(passed) => {
                    now = (now + passed).max(0);
                    let changed = throttle.tick(s(now.unsigned_abs())).is_some();
                    prop_assert_eq!(changed, plain.tick(now.into()));
                }
                Step::Processed(messages) => {
                    throttle.processed(messages);
                    plain.processed += u128::from(messages);
                }
            }
            let state = throttle.state();
            prop_assert_eq!(u128::from(state.depth()), plain.depth);
            prop_assert_eq!(u128::from(state.job_limit()), plain.limit);
            prop_assert_eq!(state.generation(), plain.generation);
            let as_configured = (plain.depth, plain.limit) == configured;
            prop_assert_eq!(state.level() == 0, as_configured);
            for backlog in [0, 1, u64::from(depth) + 1, u64::MAX] {
                let jobs = state.wanted(backlog);
                prop_assert!(jobs <= state.job_limit() && (jobs == 0) == (backlog == 0));
            }
        }
    }
}
