//! Tests of reading usage: recorded files of cgroup v1, cgroup v2 and procfs, and once this process.

use super::network::parse;
use super::samples::Machine;
use super::*;
use expect_test::{Expect, expect};

fn check(machine: &Machine, cgroup: &str, detail: Detail, expect: Expect) {
    let usage = Reader::new(machine.proc()).cgroup(&machine.tree(), Path::new(cgroup), detail);
    expect.assert_eq(&format!("{usage:#?}\n"));
}

#[test]
fn v1_tells_all() {
    let machine = Machine::v1();
    machine.add("/kubepods");
    check(
        &machine,
        "/kubepods",
        Detail::All,
        expect![[r#"
            Some(
                CgroupUsage {
                    cpu: Some(
                        Cpu {
                            usage: 16519821,
                            user: 10000000,
                            system: 20000000,
                            periods: 40,
                            throttled_periods: 3,
                            throttled: 5000000,
                            burst_periods: 1,
                            burst: 7000,
                            shares: Some(
                                102,
                            ),
                            quota: Some(
                                10000,
                            ),
                            period: Some(
                                100000,
                            ),
                        },
                    ),
                    memory: Some(
                        Memory {
                            usage: 1327680,
                            max_usage: Some(
                                2000000,
                            ),
                            failcnt: Some(
                                4,
                            ),
                            limit: Some(
                                16777216,
                            ),
                            swap_limit: Some(
                                33554432,
                            ),
                            reservation: None,
                            cache: 1000000,
                            rss: 53248,
                            swap: Some(
                                4096,
                            ),
                            mapped_file: 8192,
                            kernel: Some(
                                69632,
                            ),
                            faults: 1034,
                            major_faults: 1,
                            active_file: 100000,
                            inactive_file: 900000,
                            oom_kills: Some(
                                5,
                            ),
                        },
                    ),
                    threads: Some(
                        Threads {
                            current: 3,
                            limit: None,
                        },
                    ),
                    processes: Some(
                        Processes {
                            count: 2,
                            descriptors: 3,
                            sockets: 1,
                            max_open_files: Some(
                                1024,
                            ),
                        },
                    ),
                    disks: [
                        DiskIo {
                            device: (
                                8,
                                0,
                            ),
                            read_bytes: 4096,
                            written_bytes: 8192,
                            reads: 1,
                            writes: 2,
                        },
                    ],
                    pressure: Pressure {
                        cpu: None,
                        memory: None,
                        io: None,
                    },
                },
            )
        "#]],
    );
}

#[test]
fn v2_tells_all() {
    let machine = Machine::v2();
    machine.add("/kubepods");
    check(
        &machine,
        "/kubepods",
        Detail::All,
        expect![[r#"
            Some(
                CgroupUsage {
                    cpu: Some(
                        Cpu {
                            usage: 16519000,
                            user: 10000000,
                            system: 6519000,
                            periods: 40,
                            throttled_periods: 3,
                            throttled: 5000000,
                            burst_periods: 1,
                            burst: 7000,
                            shares: Some(
                                106,
                            ),
                            quota: Some(
                                10000,
                            ),
                            period: Some(
                                100000,
                            ),
                        },
                    ),
                    memory: Some(
                        Memory {
                            usage: 1327680,
                            max_usage: Some(
                                2000000,
                            ),
                            failcnt: Some(
                                4,
                            ),
                            limit: Some(
                                16777216,
                            ),
                            swap_limit: None,
                            reservation: Some(
                                0,
                            ),
                            cache: 1000000,
                            rss: 53248,
                            swap: Some(
                                4096,
                            ),
                            mapped_file: 8192,
                            kernel: Some(
                                69632,
                            ),
                            faults: 1034,
                            major_faults: 1,
                            active_file: 100000,
                            inactive_file: 900000,
                            oom_kills: Some(
                                5,
                            ),
                        },
                    ),
                    threads: Some(
                        Threads {
                            current: 3,
                            limit: None,
                        },
                    ),
                    processes: Some(
                        Processes {
                            count: 2,
                            descriptors: 3,
                            sockets: 1,
                            max_open_files: Some(
                                1024,
                            ),
                        },
                    ),
                    disks: [
                        DiskIo {
                            device: (
                                8,
                                0,
                            ),
                            read_bytes: 4096,
                            written_bytes: 8192,
                            reads: 1,
                            writes: 2,
                        },
                    ],
                    pressure: Pressure {
                        cpu: Some(
                            Psi {
                                full: PsiData {
                                    total: 1000,
                                    avg10: 0.0,
                                    avg60: 0.0,
                                    avg300: 0.0,
                                },
                                some: PsiData {
                                    total: 123456,
                                    avg10: 1.5,
                                    avg60: 0.25,
                                    avg300: 0.0,
                                },
                            },
                        ),
                        memory: Some(
                            Psi {
                                full: PsiData {
                                    total: 0,
                                    avg10: 0.0,
                                    avg60: 0.0,
                                    avg300: 0.0,
                                },
                                some: PsiData {
                                    total: 0,
                                    avg10: 0.0,
                                    avg60: 0.0,
                                    avg300: 0.0,
                                },
                            },
                        ),
                        io: Some(
                            Psi {
                                full: PsiData {
                                    total: 66,
                                    avg10: 0.0,
                                    avg60: 0.0,
                                    avg300: 0.0,
                                },
                                some: PsiData {
                                    total: 77,
                                    avg10: 0.0,
                                    avg60: 0.0,
                                    avg300: 0.1,
                                },
                            },
                        ),
                    },
                },
            )
        "#]],
    );
}

#[test]
fn only_what_is_asked_for_is_read() {
    for machine in [Machine::v1(), Machine::v2()] {
        machine.add("/kubepods");
        let read =
            |detail| Reader::new(machine.proc()).cgroup(&machine.tree(), Path::new("/kubepods"), detail).unwrap();
        let all = read(Detail::All);
        let least = read(Detail::CpuAndMemory);
        let memory = least.memory.unwrap();
        assert_eq!(least.cpu.unwrap().usage, all.cpu.unwrap().usage);
        assert_eq!((memory.working_set(), memory.limit), (427_680, None));
        assert_eq!((least.threads, least.processes, least.disks.len()), (None, None, 0));
        let summary = read(Detail::Summary);
        assert_eq!(summary.memory.unwrap().limit, Some(16 << 20));
        assert_eq!(summary.processes.unwrap(), Processes { count: 2, ..Processes::default() });
    }
}

#[test]
fn the_root_of_v2_is_the_machine() {
    let machine = Machine::v2();
    let usage = Reader::new(machine.proc()).cgroup(&machine.tree(), Path::new("/"), Detail::All).unwrap();
    let memory = usage.memory.unwrap();
    assert_eq!((memory.usage, memory.swap, memory.limit), (512 << 20, Some(128 << 20), None));
    assert_eq!(memory.working_set(), (512 << 20) - 900_000);
    assert_eq!(usage.cpu.unwrap().usage, 16_519_000);
}

#[test]
fn what_is_gone_or_broken_has_no_figure() {
    for (machine, controller, file) in
        [(Machine::v1(), "memory", "memory.usage_in_bytes"), (Machine::v2(), "memory", "memory.current")]
    {
        let mut reader = Reader::new(machine.proc());
        assert_eq!(reader.cgroup(&machine.tree(), Path::new("/kubepods"), Detail::All), None);
        machine.add("/kubepods");
        machine.set(controller, "/kubepods", file, "lots\n");
        let usage = reader.cgroup(&machine.tree(), Path::new("/kubepods"), Detail::All).unwrap();
        assert!(usage.cpu.is_some() && usage.memory.is_none());
        assert_eq!(reader.first_process(&machine.tree(), Path::new("/kubepods")), Some(7));
        assert!(reader.made_at(&machine.tree(), Path::new("/kubepods")).unwrap() > 0);
    }
}

#[test]
fn a_file_of_any_length_is_read() {
    let machine = Machine::v2();
    machine.add("/kubepods");
    let text = format!("{}usage_usec 5\n", "x 1\n".repeat(3000));
    machine.set("cpu", "/kubepods", "cpu.stat", &text);
    let usage = Reader::new(machine.proc()).cgroup(&machine.tree(), Path::new("/kubepods"), Detail::All).unwrap();
    assert_eq!(usage.cpu.unwrap().usage, 5000);
}

#[test]
fn pressure_is_read_or_not_at_all() {
    let psi = parse_psi("some avg10=1.50 avg60=0.25 avg300=0.00 total=12\n").unwrap();
    assert_eq!((psi.some.avg10, psi.some.total, psi.full.total), (1.5, 12, 0));
    for text in ["", "full avg10=0 avg60=0 avg300=0 total=0\n", "some avg10=x\n", "some nonsense\n"] {
        assert_eq!(parse_psi(text), None, "{text}");
    }
}

#[test]
fn interfaces_are_read() {
    let line = "eth0: 1 2 3 4 0 0 0 0 5 6 7 8 0 0 0 0";
    let found =
        parse(&format!("Inter-|\n face |\n lo: 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1\n {line}\nshort: 1 2 3\nveth1: 1\n"));
    assert_eq!(found.len(), 1);
    let numbers = |traffic: network::Traffic| [traffic.bytes, traffic.packets, traffic.errors, traffic.dropped];
    assert_eq!((numbers(found[0].received), numbers(found[0].sent)), ([1, 2, 3, 4], [5, 6, 7, 8]));
    assert_eq!(Reader::new("/proc").interfaces(u32::MAX), []);
}

#[test]
fn the_machine_is_read() {
    let machine = Machine::v1();
    let mut reader = Reader::new(machine.proc());
    let processes = reader.machine_processes();
    assert_eq!((processes.max, processes.current), (Some(32768), Some(237)));
    assert_eq!(reader.booted_at(), Some(1_790_000_000_000_000_000));
    assert_eq!(reader.machine_pressure().io.unwrap().full.total, 4);
    let devices = reader.block_devices();
    assert_eq!((devices.len(), devices[0].name.as_str(), devices[0].counters[2]), (2, "sda", 80));
}

#[test]
fn a_process_is_read_whatever_its_name() {
    let machine = Machine::v1();
    let own = Reader::new(machine.proc()).own_process().unwrap();
    assert_eq!((own.cpu_seconds, own.threads, own.size, own.max_descriptors), (7.5, 19, 100 << 20, Some(1024)));
    assert_eq!(own.started_at, 1_790_000_010_000_000_000);
}

#[test]
fn this_process_is_read() {
    let own = Reader::new("/proc").own_process().unwrap();
    assert!(own.resident > 1 << 20 && own.size >= own.resident && own.threads > 0 && own.descriptors > 2, "{own:?}");
    assert!(own.started_at <= crate::util::clock::wall() && own.max_descriptors.unwrap() > 0, "{own:?}");
}
