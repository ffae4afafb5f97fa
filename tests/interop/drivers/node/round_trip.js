// A round trip by kafkajs: a first attempt with a wrong secret, which must be refused, and then a
// login by which it produces, consumes as a member of a group, and commits. Standard input has a
// line name=value for each part; the lines written are those of all drivers.

const { Kafka } = require('kafkajs')
const fs = require('fs')
const { setTimeout } = require('timers/promises')

const TIMEOUT_MS = 30000
const RENEW_MS = 500 // before a session ends

function readTrip() {
  const lines = fs.readFileSync(0, 'utf8').split('\n').filter((line) => line)
  const given = Object.fromEntries(
    lines.map((line) => [line.slice(0, line.indexOf('=')), line.slice(line.indexOf('=') + 1)]),
  )
  return { ...given, values: given.values.split(',') }
}

function say(event, fields) {
  process.stdout.write(JSON.stringify({ event, ...fields }) + '\n')
}

// The secret is a password, a token, or a PEM file with a key and its certificates.
function connect({ bootstrap, protocol, mechanism, user, secret, ca }) {
  const settings = {
    brokers: [bootstrap],
    reauthenticationThreshold: RENEW_MS,
    logCreator: () => ({ namespace, label, log }) =>
      process.stderr.write(`${label} [${namespace}] ${JSON.stringify(log)}\n`),
  }
  if (protocol.endsWith('SSL')) settings.ssl = { ca: [fs.readFileSync(ca)] }
  if (mechanism === '') {
    settings.ssl.key = settings.ssl.cert = fs.readFileSync(secret)
  } else if (mechanism === 'OAUTHBEARER') {
    settings.sasl = { mechanism, oauthBearerProvider: async () => ({ value: secret }) }
  } else {
    settings.sasl = { mechanism, username: user, password: secret }
  }
  return new Kafka(settings)
}

async function travel(trip) {
  const kafka = connect(trip)
  const producer = kafka.producer()
  await producer.connect()
  for (const value of trip.values) {
    await producer.send({ topic: trip.topic, messages: [{ value }] })
    await setTimeout(Number(trip.pause_ms))
  }
  await producer.disconnect()

  const consumer = kafka.consumer({ groupId: trip.group, maxWaitTimeInMs: 100 })
  await consumer.connect()
  await consumer.subscribe({ topics: [trip.topic], fromBeginning: true })
  const values = []
  await new Promise((resolve, reject) => {
    const late = () => reject(new Error('not consumed in time'))
    setTimeout(TIMEOUT_MS, undefined, { ref: false }).then(late)
    consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error))
    const eachMessage = async ({ message, partition, topic }) => {
      values.push(message.value.toString())
      if (values.length < trip.values.length) return
      const offset = String(Number(message.offset) + 1)
      await consumer.commitOffsets([{ topic, partition, offset }])
      resolve()
    }
    consumer.run({ autoCommit: false, eachMessage }).catch(reject)
  })
  await consumer.disconnect()
  say('consumed', { values })
}

async function main() {
  const trip = readTrip()
  try {
    await travel({ ...trip, secret: trip.wrong_secret })
  } catch (error) {
    say('refused', { message: String(error) })
  }
  await travel(trip)
}

main().catch((error) => {
  process.stderr.write(`${error.stack}\n`)
  process.exit(1)
})
