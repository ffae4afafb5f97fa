"""Kafka's broker settings without effect here, with the reason; each is accepted with a note.

The names are those of Kafka 2.8. The broker refuses to start with a name that is in none of the
tables, and with a setting whose silent loss would leave a cluster less safe than its file says
(`REFUSED`).
"""

from __future__ import annotations

_SECURITY = "Kerberos and delegation tokens are not there, so it has nothing to act on"
_PREFIXED = "counts with its prefix alone, listener.name.<listener>.<mechanism>."
_METRICS = "metrics reporters are not there"
_KRAFT = "the cluster is kept in ZooKeeper, so it has nothing to act on"
_LOOP = "one event loop does this work"
_PURGATORY = "waiting requests are dropped when they are done, so there is nothing to purge"

# Names by reason, because many share one.
_BY_REASON: dict[str, str] = {
    "where logs start is written down with their recovery points": """
        log.flush.start.offset.checkpoint.interval.ms""",
    "consumers fetch from leaders": "replica.selector.class",
    "the size is left to the operating system": "replica.socket.receive.buffer.bytes",
    _SECURITY: """
        delegation.token.expiry.check.interval.ms delegation.token.expiry.time.ms
        delegation.token.master.key delegation.token.max.lifetime.ms delegation.token.secret.key
        sasl.client.callback.handler.class sasl.kerberos.kinit.cmd
        sasl.kerberos.min.time.before.relogin
        sasl.kerberos.principal.to.local.rules sasl.kerberos.service.name
        sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor
        sasl.login.callback.handler.class sasl.login.class sasl.login.refresh.buffer.seconds
        sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor
        sasl.login.refresh.window.jitter sasl.mechanism.controller.protocol""",
    _PREFIXED: "sasl.jaas.config",
    _METRICS: """
        kafka.metrics.polling.interval.secs kafka.metrics.reporters metric.reporters
        metrics.num.samples metrics.recording.level metrics.sample.window.ms""",
    _KRAFT: """
        broker.heartbeat.interval.ms broker.session.timeout.ms controller.listener.names
        controller.quorum.append.linger.ms controller.quorum.election.backoff.max.ms
        controller.quorum.election.timeout.ms controller.quorum.fetch.timeout.ms
        controller.quorum.request.timeout.ms controller.quorum.retry.backoff.ms
        controller.quorum.voters initial.broker.registration.timeout.ms metadata.log.dir
        node.id""",
    _LOOP: "background.threads num.network.threads num.replica.alter.log.dirs.threads",
    "a connection is read no further while a request of it is held": "queued.max.requests",
    _PURGATORY: """
        delete.records.purgatory.purge.interval.requests
        fetch.purgatory.purge.interval.requests
        producer.purgatory.purge.interval.requests""",
    "requests are pipelined on one session": """
        authorizer.zookeeper.max.in.flight.requests zookeeper.max.in.flight.requests""",
    "it was read by old consumers only": "zookeeper.sync.time.ms",
    "the time is left to the operating system": """
        socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms""",
    "offsets are answered when they are appended and replicated": """
        offsets.commit.required.acks""",
    "policies are Java classes": """
        alter.config.policy.class.name create.topic.policy.class.name""",
}

ACCEPTED: dict[str, str] = {
    name: reason for reason, names in _BY_REASON.items() for name in names.split()
}

REFUSED: dict[str, str] = {
    "principal.builder.class": "names a Java class, and who a client is would be decided otherwise",
    "client.quota.callback.class": "it is a Java class, and the file asks for its quotas",
    "zookeeper.ssl.crl.enable": "revocation lists are not fetched, and the file asks for them",
    "zookeeper.ssl.ocsp.enable": "OCSP is not asked, and the file asks for it",
    "process.roles": "there is no KRaft mode: the cluster is kept in ZooKeeper",
}

# With these values a refused setting asks for nothing.
HARMLESS = frozenset({"", "false"})
