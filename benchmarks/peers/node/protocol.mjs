// The protocol that every peer of the scorecard speaks (../protocol.py describes it), for peers in JavaScript.
import { openSync, writeSync } from 'node:fs'
import { createInterface } from 'node:readline'

export const clock = () => process.hrtime.bigint()

export function * chunks (first, count, size = 1000) {
  for (let start = first; start < first + count; start += size) {
    const end = Math.min(start + size, first + count)
    yield Array.from({ length: end - start }, (_, i) => start + i)
  }
}

export const payload = number =>
  ({ number, name: 'Ana', product: 'Acme', url: 'https://app.example.com' })

export class Peer {
  done = 0
  lastNs = 0n
  delay = 0
  #record = null

  constructor (url) { this.url = url }

  recordTo (path) { this.#record = path === '-' ? null : openSync(path, 'a', 0o600) }

  called (number) {
    this.lastNs = clock()
    if (this.#record !== null) writeSync(this.#record, `${number} ${this.lastNs} -\n`)
    this.done++
  }

  async handle (number) {
    if (this.delay) await new Promise(resolve => setTimeout(resolve, this.delay))
    this.called(number)
  }
}

const seconds = start => Number(clock() - start) / 1e9
const write = line => process.stdout.write(JSON.stringify(line) + '\n')

async function answer (peer, command, words) {
  const numbers = words.map(Number)
  const start = clock()
  switch (command) {
    case 'work':
      peer.recordTo(words[0])
      peer.delay = numbers[1]
      return (await peer.work()) ?? null
    case 'fill':
      await peer.fill(...numbers)
      return { seconds: seconds(start) }
    case 'enqueue': {
      for (let i = 0; i < numbers[1]; i++) await peer.enqueue(numbers[0] + i)
      return { seconds: seconds(start), committed_ns: Number(clock()) }
    }
    case 'setup': case 'grow': case 'stop': case 'left':
      return (await peer[command](...numbers)) ?? null
    default:
      throw new Error('unknown command')
  }
}

export async function main (Kind) {
  // A lost connection is the client's business; it must not end the process.
  process.on('unhandledRejection', () => {})
  process.on('uncaughtException', () => {})
  const peer = new Kind(process.env.DATABASE_URL)
  let reported = 0
  setInterval(() => {
    if (peer.done === reported) return
    reported = peer.done
    write({ done: reported, last_ns: Number(peer.lastNs) })
  }, 20).unref()
  write({ answer: 'ready' })
  for await (const line of createInterface({ input: process.stdin })) {
    const [command, ...words] = line.split(' ')
    try {
      write({ answer: await answer(peer, command, words) })
    } catch (error) {
      write({ error: `${command}: ${error.message}`.slice(0, 500) })
    }
  }
  process.exit(0)
}
