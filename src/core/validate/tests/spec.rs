//! Volumes, mounts, security contexts, the spec as a whole, and what static pods must not use.

use super::*;

#[test]
fn volumes() {
    fine(
        "spec.volumes",
        [
            json!([{"name": "v"}]),
            json!([{"name": "v", "hostPath": {"path": "/a", "type": "DirectoryOrCreate"}}, {"name": "w", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}]),
            json!([{"name": "v", "downwardAPI": {"items": [{"path": "a/b", "fieldRef": {"fieldPath": "metadata.labels"}}]}}]),
            json!([{"name": "v", "projected": {"sources": [{"downwardAPI": {"items": [{"path": "a", "resourceFieldRef": {"containerName": "c", "resource": "limits.cpu"}}]}}]}}]),
            json!([{"name": "v", "image": {"reference": "x", "pullPolicy": "Never"}}]),
        ],
    );
    check(
        "spec.volumes",
        [
            json!([{"name": "", "emptyDir": {}}, {"name": "A", "emptyDir": {}}]),
            json!([{"name": "v", "emptyDir": {}}, {"name": "v", "emptyDir": {}}]),
            json!([{"name": "v", "emptyDir": {}, "hostPath": {"path": "/a"}}]),
            json!([{"name": "v", "emptyDir": {"medium": "Paper", "sizeLimit": "-1"}}]),
            json!([{"name": "v", "hostPath": {"path": "/a/../b", "type": "Hole"}}, {"name": "w", "hostPath": {"path": ""}}]),
            json!([{"name": "v", "secret": {"defaultMode": 512, "items": [{"key": "", "path": "/a"}, {"key": "k", "path": "..a", "mode": -1}]}}]),
            json!([{"name": "v", "configMap": {"items": [{"key": "a/b", "path": "a/../b"}]}}]),
            json!([{"name": "v", "downwardAPI": {"items": [{"path": "a"}, {"path": "b", "resourceFieldRef": {"resource": "limits.cpu"}}, {"path": "c", "fieldRef": {"fieldPath": "status.podIP"}}]}}]),
            json!([{"name": "v", "projected": {"sources": [{}, {"secret": {"name": "s"}, "configMap": {"name": "m"}}, {"serviceAccountToken": {"path": "t", "expirationSeconds": 1}}]}}]),
            json!([{"name": "v", "projected": {"sources": [{"secret": {"name": "s", "items": [{"key": "k", "path": "p"}]}}, {"configMap": {"name": "m", "items": [{"key": "k", "path": "p"}]}}]}}]),
            json!([{"name": "v", "image": {}}]),
            json!([{"name": "v", "nfs": {"server": "", "path": "a"}}]),
        ],
        &expect![[r#"
            spec.volumes[0].name: must be set
            spec.volumes[1].name: "A" must be up to 63 lower-case letters, digits and '-', beginning and ending with a letter or digit
            spec.volumes[1].name: "v" is the name of another volume as well
            spec.volumes[0]: has 2 sources, emptyDir and hostPath: only one may be given
            spec.volumes[0].emptyDir.sizeLimit: -1 must not be below 0
            spec.volumes[0].emptyDir.medium: "Paper" is not known: leave it empty for disk, or use Memory, HugePages or HugePages-SIZE
            spec.volumes[0].hostPath.path: "/a/../b" must not contain '..'
            spec.volumes[0].hostPath.type: "Hole" is not known: use DirectoryOrCreate, Directory, FileOrCreate, File, Socket, CharDevice or BlockDevice
            spec.volumes[1].hostPath.path: must be set
            spec.volumes[0].secret.secretName: must be set
            spec.volumes[0].secret.defaultMode: 512 must be from 0 to 0777 (511 in JSON)
            spec.volumes[0].secret.items[0].key: must be set
            spec.volumes[0].secret.items[0].path: "/a" must be a relative path
            spec.volumes[0].secret.items[1].path: "..a" must not begin with '..'
            spec.volumes[0].secret.items[1].mode: -1 must be from 0 to 0777 (511 in JSON)
            spec.volumes[0].configMap.name: must be set
            spec.volumes[0].configMap.items[0].key: "a/b" must be up to 253 letters, digits, '-', '_' and '.', and neither '.' nor begin with '..'
            spec.volumes[0].configMap.items[0].path: "a/../b" must not contain '..'
            spec.volumes[0].downwardAPI.items[0]: needs fieldRef or resourceFieldRef
            spec.volumes[0].downwardAPI.items[1].resourceFieldRef.containerName: must be set: a volume belongs to no container
            spec.volumes[0].downwardAPI.items[2].fieldRef.fieldPath: "status.podIP" is not known: use metadata.name, metadata.namespace, metadata.labels, metadata.annotations, metadata.uid, metadata.labels['KEY'] or metadata.annotations['KEY']
            spec.volumes[0].projected.sources[0]: needs a source: secret, configMap, downwardAPI or serviceAccountToken
            spec.volumes[0].projected.sources[1]: only one source may be given
            spec.volumes[0].projected.sources[2].serviceAccountToken.expirationSeconds: 1 must be from 600 to 4294967296
            spec.volumes[0].projected.sources[1].configMap: "p" is the path of another file of this volume as well
            spec.volumes[0].image.reference: must be set
            spec.volumes[0].nfs.server: must be set
            spec.volumes[0].nfs.path: "a" must be an absolute path
        "#]],
    );
}

#[test]
fn mounts() {
    fine(
        "spec.containers[0].volumeMounts",
        [
            json!([{"name": "v", "mountPath": "/a", "subPath": "x/y"}, {"name": "v", "mountPath": "/b", "subPathExpr": "$(X)", "mountPropagation": "HostToContainer"}]),
            json!([{"name": "v", "mountPath": "/a", "readOnly": true, "recursiveReadOnly": "Enabled"}]),
        ],
    );
    check(
        "spec.containers[0].volumeMounts",
        [
            json!([{"name": "", "mountPath": ""}, {"name": "w", "mountPath": "/w"}]),
            json!([{"name": "v", "mountPath": "/a"}, {"name": "v", "mountPath": "/a"}]),
            json!([{"name": "v", "mountPath": "/a", "subPath": "/x", "subPathExpr": "../x"}]),
            json!([{"name": "v", "mountPath": "/a", "mountPropagation": "Bidirectional"}, {"name": "v", "mountPath": "/b", "mountPropagation": "Sideways"}]),
            json!([{"name": "v", "mountPath": "/a", "recursiveReadOnly": "Enabled", "mountPropagation": "HostToContainer"}, {"name": "v", "mountPath": "/b", "recursiveReadOnly": "Maybe"}]),
        ],
        &expect![[r#"
            spec.containers[0].volumeMounts[0].name: must be set
            spec.containers[0].volumeMounts[0].mountPath: must be set
            spec.containers[0].volumeMounts[1].name: "w" is not among spec.volumes
            spec.containers[0].volumeMounts[1].mountPath: "/a" is where another volume is mounted as well
            spec.containers[0].volumeMounts[0].subPath: "/x" must be a relative path
            spec.containers[0].volumeMounts[0].subPathExpr: "../x" must not contain '..'
            spec.containers[0].volumeMounts[0].subPathExpr: must not be given together with subPath
            spec.containers[0].volumeMounts[0].mountPropagation: Bidirectional is for privileged containers only
            spec.containers[0].volumeMounts[1].mountPropagation: "Sideways" is not known: use None, HostToContainer or Bidirectional
            spec.containers[0].volumeMounts[0].recursiveReadOnly: needs readOnly to be true
            spec.containers[0].volumeMounts[0].recursiveReadOnly: needs mountPropagation to be None
            spec.containers[0].volumeMounts[1].recursiveReadOnly: "Maybe" is not known: use Disabled, IfPossible or Enabled
        "#]],
    );
    fine(
        "spec.containers[0]",
        [json!({"name": "c", "image": "x", "securityContext": {"privileged": true},
            "volumeMounts": [{"name": "v", "mountPath": "/a", "mountPropagation": "Bidirectional"}]})],
    );
    check(
        "spec.containers[0].volumeDevices",
        [json!([{"name": "v", "devicePath": "/dev/../x"}])],
        &expect![[r#"
        spec.containers[0].volumeDevices[0].devicePath: "/dev/../x" must not contain '..'
        spec.containers[0].volumeDevices[0].name: "v" must be the volume of a claim to be used as a device
    "#]],
    );
}

#[test]
fn security_contexts() {
    fine(
        "spec.containers[0].securityContext",
        [
            json!({"capabilities": {"add": ["NET_ADMIN"], "drop": ["ALL"]}, "allowPrivilegeEscalation": false, "runAsUser": 0}),
            json!({"seccompProfile": {"type": "Localhost", "localhostProfile": "a/b.json"}, "appArmorProfile": {"type": "RuntimeDefault"}}),
        ],
    );
    check(
        "spec.containers[0].securityContext",
        [
            json!({"runAsUser": -1, "runAsGroup": 1_i64 << 31, "procMount": "Unmasked"}),
            json!({"privileged": true, "allowPrivilegeEscalation": false, "capabilities": {"add": ["CAP_SYS_ADMIN", "NET ADMIN"]}}),
            json!({"seccompProfile": {"type": ""}, "appArmorProfile": {"type": "Strict"}}),
            json!({"seccompProfile": {"type": "Localhost"}, "appArmorProfile": {"type": "Localhost", "localhostProfile": " x"}}),
            json!({"seccompProfile": {"type": "Localhost", "localhostProfile": "../x"}, "appArmorProfile": {"type": "Unconfined", "localhostProfile": "x"}}),
            json!({"windowsOptions": {}}),
        ],
        &expect![[r#"
            spec.containers[0].securityContext.runAsUser: -1 must be from 0 to 2147483647
            spec.containers[0].securityContext.runAsGroup: 2147483648 must be from 0 to 2147483647
            spec.containers[0].securityContext.procMount: Unmasked needs spec.hostUsers to be false
            spec.containers[0].securityContext.capabilities.add[1]: "NET ADMIN" must be ALL or the name of a capability, such as NET_ADMIN
            spec.containers[0].securityContext.allowPrivilegeEscalation: must not be false when privileged is true
            spec.containers[0].securityContext.allowPrivilegeEscalation: must not be false when capability CAP_SYS_ADMIN is added
            spec.containers[0].securityContext.seccompProfile.type: must be set
            spec.containers[0].securityContext.appArmorProfile.type: "Strict" is not known: use RuntimeDefault, Unconfined or Localhost
            spec.containers[0].securityContext.seccompProfile.localhostProfile: must be set for type Localhost
            spec.containers[0].securityContext.appArmorProfile.localhostProfile: must have no spaces around it and up to 4095 bytes
            spec.containers[0].securityContext.seccompProfile.localhostProfile: "../x" must not contain '..'
            spec.containers[0].securityContext.appArmorProfile.localhostProfile: is for type Localhost only
            spec.containers[0].securityContext.windowsOptions: must not be set: this node runs Linux
        "#]],
    );
    check(
        "spec.securityContext",
        [
            json!({"fsGroup": -1, "supplementalGroups": [1, -1], "fsGroupChangePolicy": "Often", "supplementalGroupsPolicy": "Loose", "seLinuxChangePolicy": "No"}),
            json!({"sysctls": [{"name": "net.ipv4.tcp_syncookies", "value": "1"}, {"name": "net/ipv4/tcp_syncookies", "value": "0"}, {"name": "No", "value": ""}]}),
        ],
        &expect![[r#"
            spec.securityContext.fsGroup: -1 must be from 0 to 2147483647
            spec.securityContext.supplementalGroups[1]: -1 must be from 0 to 2147483647
            spec.securityContext.fsGroupChangePolicy: "Often" is not known: use OnRootMismatch or Always
            spec.securityContext.supplementalGroupsPolicy: "Loose" is not known: use Merge or Strict
            spec.securityContext.seLinuxChangePolicy: "No" is not known: use Recursive or MountOption
            spec.securityContext.sysctls[1].name: "net/ipv4/tcp_syncookies" is set twice
            spec.securityContext.sysctls[2].name: "No" must be lower-case letters, digits, '-' and '_' in parts between '.' or '/', up to 253 in all
        "#]],
    );
    for (flags, expect) in [
        (
            json!({"hostNetwork": true, "hostUsers": false, "hostIPC": true, "hostPID": true, "shareProcessNamespace": true}),
            expect![[r#"
                spec.shareProcessNamespace: must not be true together with hostPID
                spec.hostNetwork: must not be true when hostUsers is false
                spec.hostPID: must not be true when hostUsers is false
                spec.hostIPC: must not be true when hostUsers is false
            "#]],
        ),
        (
            json!({"hostNetwork": true, "hostIPC": true, "securityContext": {"sysctls": [{"name": "net.core.somaxconn", "value": "1"}, {"name": "kernel.shmmax", "value": "1"}]}}),
            expect![[r#"
                spec.securityContext.sysctls[0].name: "net.core.somaxconn" must not be set with hostNetwork: it would change the node
                spec.securityContext.sysctls[1].name: "kernel.shmmax" must not be set with hostIPC: it would change the node
            "#]],
        ),
        (
            json!({"hostUsers": false, "containers": [{"name": "c", "image": "x", "securityContext": {"procMount": "Unmasked"}}]}),
            expect![""],
        ),
    ] {
        let mut spec = base()["spec"].take();
        for (key, value) in flags.as_object().expect("an object") {
            spec[key] = value.clone();
        }
        check("spec", [spec], &expect);
    }
}

#[test]
fn the_spec_as_a_whole() {
    for (field, values, expect) in [
        (
            "restartPolicy",
            vec![json!("Sometimes")],
            expect![[r#"
            spec.restartPolicy: "Sometimes" is not known: use Always, OnFailure or Never
        "#]],
        ),
        (
            "activeDeadlineSeconds",
            vec![json!(0), json!(1_i64 << 31)],
            expect![[r#"
            spec.activeDeadlineSeconds: 0 must be from 1 to 2147483647
            spec.activeDeadlineSeconds: 2147483648 must be from 1 to 2147483647
        "#]],
        ),
        (
            "terminationGracePeriodSeconds",
            vec![json!(-1)],
            expect![[r#"
            spec.terminationGracePeriodSeconds: -1 must be at least 0
        "#]],
        ),
        (
            "hostname",
            vec![json!("a.b")],
            expect![[r#"
            spec.hostname: "a.b" must be up to 63 lower-case letters, digits and '-', beginning and ending with a letter or digit
        "#]],
        ),
        (
            "subdomain",
            vec![json!("A")],
            expect![[r#"
            spec.subdomain: "A" must be up to 63 lower-case letters, digits and '-', beginning and ending with a letter or digit
        "#]],
        ),
        (
            "hostnameOverride",
            vec![json!("a".repeat(65)), json!("-")],
            expect![[r#"
            spec.hostnameOverride: "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" must have at most 64 bytes
            spec.hostnameOverride: "-" must be up to 253 lower-case letters, digits, '-' and '.', each part between dots beginning and ending with a letter or digit
        "#]],
        ),
        (
            "hostAliases",
            vec![json!([{"ip": "x", "hostnames": ["a_b"]}])],
            expect![[r#"
            spec.hostAliases[0].ip: "x" must be an IPv4 or IPv6 address
            spec.hostAliases[0].hostnames[0]: "a_b" must be up to 253 lower-case letters, digits, '-' and '.', each part between dots beginning and ending with a letter or digit
        "#]],
        ),
        (
            "dnsPolicy",
            vec![json!("None"), json!("Guess")],
            expect![[r#"
            spec.dnsConfig.nameservers: at least one is needed when dnsPolicy is None
            spec.dnsPolicy: "Guess" is not known: use ClusterFirst, ClusterFirstWithHostNet, Default or None
        "#]],
        ),
        (
            "dnsConfig",
            vec![
                json!({"nameservers": ["1.1.1.1", "x", "2.2.2.2", "3.3.3.3"], "searches": ["A.b"], "options": [{"value": "1"}]}),
                json!({"searches": vec!["a".repeat(70); 33]}),
            ],
            expect![[r#"
                spec.dnsConfig.nameservers: 4 are too many: at most 3
                spec.dnsConfig.nameservers[1]: "x" must be an IPv4 or IPv6 address
                spec.dnsConfig.searches[0]: "A.b" must be a domain of lower-case letters, digits, '-', '_' and '.'
                spec.dnsConfig.options[0].name: must be set
                spec.dnsConfig.searches: 33 are too many: at most 32
                spec.dnsConfig.searches: 2342 characters are too many: at most 2048 with the spaces between
            "#]],
        ),
        (
            "tolerations",
            vec![
                json!([{"operator": "Equal"}, {"key": "a b", "operator": "Exists", "value": "x"}]),
                json!([{"key": "a", "value": "x y", "effect": "Perhaps", "tolerationSeconds": 1}, {"key": "b", "operator": "Gt"}]),
            ],
            expect![[r#"
                spec.tolerations[0].operator: must be Exists when key is empty
                spec.tolerations[1].key: "a b" must be a name of up to 63 letters, digits, '-', '_' and '.', beginning and ending with a letter or digit, with or without a domain and '/' before it
                spec.tolerations[1].value: must be empty when operator is Exists
                spec.tolerations[0].value: "x y" must be empty or up to 63 letters, digits, '-', '_' and '.', beginning and ending with a letter or digit
                spec.tolerations[0].effect: "Perhaps" is not known: use NoSchedule, PreferNoSchedule or NoExecute
                spec.tolerations[0].effect: must be NoExecute when tolerationSeconds is set
                spec.tolerations[1].operator: "Gt" is not known: use Equal or Exists
            "#]],
        ),
        (
            "nodeSelector",
            vec![json!({"a b": "x"})],
            expect![[r#"
            spec.nodeSelector[a b]: "a b" must be a name of up to 63 letters, digits, '-', '_' and '.', beginning and ending with a letter or digit, with or without a domain and '/' before it
        "#]],
        ),
        (
            "os",
            vec![json!({"name": "windows"})],
            expect![[r#"
            spec.os.name: "windows" is not known: use linux
        "#]],
        ),
        (
            "runtimeClassName",
            vec![json!("A")],
            expect![[r#"
            spec.runtimeClassName: "A" must be up to 253 lower-case letters, digits, '-' and '.', each part between dots beginning and ending with a letter or digit
        "#]],
        ),
        (
            "preemptionPolicy",
            vec![json!("Fight")],
            expect![[r#"
            spec.preemptionPolicy: "Fight" is not known: use PreemptLowerPriority or Never
        "#]],
        ),
        (
            "schedulingGates",
            vec![json!([{"name": "g"}])],
            expect![[r#"
            spec.schedulingGates: must be empty for a pod that is bound to a node
        "#]],
        ),
        (
            "readinessGates",
            vec![json!([{"conditionType": "a b"}])],
            expect![[r#"
            spec.readinessGates[0].conditionType: "a b" must be a name of up to 63 letters, digits, '-', '_' and '.', beginning and ending with a letter or digit, with or without a domain and '/' before it
        "#]],
        ),
        (
            "topologySpreadConstraints",
            vec![json!([{"maxSkew": 0, "topologyKey": "", "whenUnsatisfiable": "Cry", "minDomains": 1}])],
            expect![[r#"
                spec.topologySpreadConstraints[0].maxSkew: 0 must be at least 1
                spec.topologySpreadConstraints[0].topologyKey: must be set
                spec.topologySpreadConstraints[0].whenUnsatisfiable: "Cry" is not known: use DoNotSchedule or ScheduleAnyway
                spec.topologySpreadConstraints[0].minDomains: is for whenUnsatisfiable DoNotSchedule only
            "#]],
        ),
        (
            "resourceClaims",
            vec![json!([{"name": "A"}, {"name": "A", "resourceClaimName": "x"}])],
            expect![[r#"
            spec.resourceClaims[0].name: "A" must be up to 63 lower-case letters, digits and '-', beginning and ending with a letter or digit
            spec.resourceClaims[0]: needs one of resourceClaimName and resourceClaimTemplateName
            spec.resourceClaims[1].name: "A" must be up to 63 lower-case letters, digits and '-', beginning and ending with a letter or digit
            spec.resourceClaims[1].name: "A" is the name of another claim as well
        "#]],
        ),
    ] {
        check(&format!("spec.{field}"), values, &expect);
    }
    fine(
        "spec.dnsConfig",
        [json!({"nameservers": ["::1"], "searches": [".", "_a.b."], "options": [{"name": "ndots", "value": "2"}]})],
    );
    fine(
        "spec.tolerations",
        [json!([{"operator": "Exists"}, {"key": "a", "value": "b", "effect": "NoExecute", "tolerationSeconds": 1}])],
    );
}

#[test]
fn static_pods_refer_to_nothing_of_the_api() {
    let check = |field: &str, value: Value, expect: Expect| {
        expect.assert_eq(&shown(&api_references(&pod_with(field, value))));
    };
    check(
        "spec.serviceAccountName",
        json!("robot"),
        expect![[r#"
        spec.serviceAccountName: a static pod must not use a service account: it lives in the API server
    "#]],
    );
    check(
        "spec.imagePullSecrets",
        json!([{"name": "s"}]),
        expect![[r#"
        spec.imagePullSecrets: a static pod must not use Secrets: give the node the registry's credentials
    "#]],
    );
    check(
        "spec.resourceClaims",
        json!([{"name": "c", "resourceClaimName": "x"}]),
        expect![[r#"
        spec.resourceClaims: a static pod must not use ResourceClaims: they live in the API server
    "#]],
    );
    check(
        "spec.containers[0].env",
        json!([{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}, {"name": "B", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}}]),
        expect![[r#"
            spec.containers[0].env[0].valueFrom.secretKeyRef: a static pod must not use Secrets: they live in the API server; use a hostPath volume
            spec.containers[0].env[1].valueFrom.configMapKeyRef: a static pod must not use ConfigMaps: they live in the API server; use a hostPath volume
        "#]],
    );
    check(
        "spec.initContainers[0].envFrom",
        json!([{"secretRef": {"name": "s"}}, {"configMapRef": {"name": "m"}}]),
        expect![[r#"
            spec.initContainers[0].envFrom[0].secretRef: a static pod must not use Secrets: they live in the API server; use a hostPath volume
            spec.initContainers[0].envFrom[1].configMapRef: a static pod must not use ConfigMaps: they live in the API server; use a hostPath volume
        "#]],
    );
    check(
        "spec.volumes",
        json!([
            {"name": "a", "secret": {"secretName": "s"}},
            {"name": "b", "configMap": {"name": "m"}},
            {"name": "c", "persistentVolumeClaim": {"claimName": "c"}},
            {"name": "d", "ephemeral": {}},
            {"name": "e", "csi": {"driver": "x"}},
            {"name": "f", "projected": {"sources": [
                {"secret": {"name": "s"}}, {"configMap": {"name": "m"}}, {"serviceAccountToken": {"path": "t"}},
                {"clusterTrustBundle": {"path": "t"}}, {"downwardAPI": {"items": []}},
            ]}},
            {"name": "g", "iscsi": {"targetPortal": "p", "iqn": "i", "lun": 0, "secretRef": {"name": "s"}}},
            {"name": "h", "hostPath": {"path": "/"}},
        ]),
        expect![[r#"
            spec.volumes[0].secret: a static pod must not use Secrets: they live in the API server; use a hostPath volume
            spec.volumes[1].configMap: a static pod must not use ConfigMaps: they live in the API server; use a hostPath volume
            spec.volumes[2].persistentVolumeClaim: a static pod must not use claims for volumes: they live in the API server; use a hostPath volume
            spec.volumes[3].ephemeral: a static pod must not use claims for volumes: they live in the API server; use a hostPath volume
            spec.volumes[4].csi: a static pod must not use CSI volumes: their drivers are known to the API server
            spec.volumes[5].projected.sources[0].secret: a static pod must not use Secrets: they live in the API server; use a hostPath volume
            spec.volumes[5].projected.sources[1].configMap: a static pod must not use ConfigMaps: they live in the API server; use a hostPath volume
            spec.volumes[5].projected.sources[2].serviceAccountToken: a static pod must not use a service account: it lives in the API server
            spec.volumes[5].projected.sources[3].clusterTrustBundle: a static pod must not use ClusterTrustBundles: they live in the API server
            spec.volumes[6].iscsi.secretRef: a static pod must not use Secrets: they live in the API server; use a hostPath volume
        "#]],
    );
}
