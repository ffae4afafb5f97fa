// A member of a group by kafkajs. Arguments and lines are those of all drivers.

const { AssignerProtocol, Kafka, PartitionAssigners } = require('kafkajs')
const { readFileSync } = require('fs')
const { parseArgs } = require('util')

const HEARTBEATS_A_SESSION = 10
const FETCH_WAIT_MS = 100

// Its one assigner, under the name that others know.
const ASSIGNERS = {
  roundrobin: (context) => {
    const assigner = PartitionAssigners.roundRobin(context)
    return {
      ...assigner,
      name: 'roundrobin',
      protocol: ({ topics }) => ({
        name: 'roundrobin',
        metadata: AssignerProtocol.MemberMetadata.encode({ version: assigner.version, topics }),
      }),
    }
  },
}

function parseArguments() {
  const string = { type: 'string' }
  const { values } = parseArgs({
    options: {
      bootstrap: string,
      group: string,
      topics: string,
      strategy: string,
      'client-id': string,
      'instance-id': string,
      'session-timeout-ms': string,
      login: string,
    },
  })
  return values
}

// A login over TLS by SCRAM-SHA-512; the file has ca, user and password.
function logIn(file) {
  const lines = readFileSync(file, 'utf8').trim().split('\n')
  const { ca, user, password } = Object.fromEntries(lines.map((line) => line.split(/=(.*)/s)))
  return {
    ssl: { ca: [readFileSync(ca, 'utf8')] },
    sasl: { mechanism: 'scram-sha-512', username: user, password },
  }
}

function say(event, fields) {
  process.stdout.write(JSON.stringify({ event, at_ms: Date.now(), ...fields }) + '\n')
}

function sayError(error) {
  say('error', { message: String(error) })
}

async function main() {
  const words = parseArguments()
  const sessionTimeout = Number(words['session-timeout-ms'] ?? 10000)
  const kafka = new Kafka({
    clientId: words['client-id'],
    brokers: words.bootstrap.split(','),
    ...(words.login && logIn(words.login)),
    logCreator: () => ({ namespace, label, log }) =>
      process.stderr.write(`${label} [${namespace}] ${JSON.stringify(log)}\n`),
  })
  const consumer = kafka.consumer({
    groupId: words.group,
    partitionAssigners: words.strategy.split(',').map((name) => ASSIGNERS[name]),
    sessionTimeout,
    heartbeatInterval: sessionTimeout / HEARTBEATS_A_SESSION,
    maxWaitTimeInMs: FETCH_WAIT_MS,
  })

  // kafkajs tells what a member gets; that it gives all up first is told by another event, or by
  // none if it was taken for dead.
  let owned = []
  const giveUp = (event) => {
    if (owned.length) say(event, { partitions: owned })
    owned = []
  }
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    giveUp('lost')
    owned = Object.entries(payload.memberAssignment).flatMap(([topic, partitions]) =>
      partitions.map((partition) => [topic, partition]),
    )
    say('assigned', { partitions: owned })
  })
  consumer.on(consumer.events.REBALANCING, () => giveUp('revoked'))
  consumer.on(consumer.events.STOP, () => giveUp('revoked'))
  consumer.on(consumer.events.CRASH, ({ payload }) => {
    giveUp('lost')
    sayError(payload.error)
    // It starts again by itself after some errors, and leaves others to the application: two
    // joins of its own can overlap, and one is told that its generation is not valid.
    if (!payload.restart) consume().catch(fail)
  })

  const eachBatch = async ({ batch, commitOffsetsIfNecessary, isStale, resolveOffset }) => {
    const { topic, partition } = batch
    if (isStale()) return
    for (const message of batch.messages) {
      const offset = Number(message.offset)
      say('message', { topic, partition, offset, value: message.value.toString() })
      resolveOffset(message.offset)
    }

    // consumer.commitOffsets would go on asking a coordinator that is none any more: 9 s for each
    // partition, one after the other. This one fails at once, and kafkajs looks for the coordinator.
    const offset = Number(batch.lastOffset()) + 1
    try {
      const partitions = [{ partition, offset: String(offset) }]
      await commitOffsetsIfNecessary({ topics: [{ topic, partitions }] })
    } catch (error) {
      sayError(error)
      throw error
    }
    say('committed', { offsets: [[topic, partition, offset]] })
  }

  const consume = async () => {
    await consumer.connect()
    await consumer.run({ autoCommit: false, eachBatch })
  }

  process.on('SIGTERM', () => consumer.disconnect().then(() => process.exit(0)))
  await consumer.subscribe({ topics: words.topics.split(','), fromBeginning: true })
  await consume()
}

function fail(error) {
  sayError(error)
  process.exit(1)
}

main().catch(fail)
