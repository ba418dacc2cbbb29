package wire

import (
	"encoding/binary"

	amqp "github.com/rabbitmq/amqp091-go"
)

func appendMethod(b []byte, channel uint16, class, method uint16, fill func([]byte) []byte) []byte {
	return AppendFrame(b, FrameMethod, channel, func(b []byte) []byte {
		b = binary.BigEndian.AppendUint16(b, class)
		b = binary.BigEndian.AppendUint16(b, method)
		return fill(b)
	})
}

// AppendOk appends a reply that has no fields.
func AppendOk(b []byte, channel uint16, class, method uint16) []byte {
	return appendMethod(b, channel, class, method, func(b []byte) []byte { return b })
}

func AppendStart(b []byte, properties amqp.Table, mechanisms string) []byte {
	return appendMethod(b, 0, ClassConnection, 10, func(b []byte) []byte {
		b = append(b, 0, 9)
		b = AppendTable(b, properties)
		b = appendLong(b, mechanisms)
		return appendLong(b, "en_US")
	})
}

func AppendTune(b []byte, t TuneOk) []byte {
	return appendMethod(b, 0, ClassConnection, 30, func(b []byte) []byte {
		b = binary.BigEndian.AppendUint16(b, t.ChannelMax)
		b = binary.BigEndian.AppendUint32(b, t.FrameMax)
		return binary.BigEndian.AppendUint16(b, t.Heartbeat)
	})
}

func AppendConnectionOpenOk(b []byte) []byte {
	return appendMethod(b, 0, ClassConnection, 41, func(b []byte) []byte { return append(b, 0) })
}

func AppendClose(b []byte, code uint16, text string, failed ID) []byte {
	return appendMethod(b, 0, ClassConnection, 50, fillClose(code, text, failed))
}

func AppendChannelClose(b []byte, channel, code uint16, text string, failed ID) []byte {
	return appendMethod(b, channel, ClassChannel, 40, fillClose(code, text, failed))
}

func fillClose(code uint16, text string, failed ID) func([]byte) []byte {
	if len(text) > 255 { // as RabbitMQ cuts it
		text = text[:252] + "..."
	}
	return func(b []byte) []byte {
		b = binary.BigEndian.AppendUint16(b, code)
		b = appendShort(b, text)
		b = binary.BigEndian.AppendUint16(b, failed.Class)
		return binary.BigEndian.AppendUint16(b, failed.Method)
	}
}

func AppendBlocked(b []byte, reason string) []byte {
	return appendMethod(b, 0, ClassConnection, 60, func(b []byte) []byte { return appendShort(b, reason) })
}

func AppendUnblocked(b []byte) []byte { return AppendOk(b, 0, ClassConnection, 61) }

func AppendChannelOpenOk(b []byte, channel uint16) []byte {
	return appendMethod(b, channel, ClassChannel, 11, func(b []byte) []byte { return appendLong(b, "") })
}

func AppendFlowOk(b []byte, channel uint16, active bool) []byte {
	return appendMethod(b, channel, ClassChannel, 21, func(b []byte) []byte { return appendBit(b, active) })
}

func AppendQueueDeclareOk(b []byte, channel uint16, name string, messages, consumers uint32) []byte {
	return appendMethod(b, channel, ClassQueue, 11, func(b []byte) []byte {
		b = appendShort(b, name)
		b = binary.BigEndian.AppendUint32(b, messages)
		return binary.BigEndian.AppendUint32(b, consumers)
	})
}

// AppendCountOk appends queue.purge-ok or queue.delete-ok.
func AppendCountOk(b []byte, channel, method uint16, messages uint32) []byte {
	return appendMethod(b, channel, ClassQueue, method, func(b []byte) []byte {
		return binary.BigEndian.AppendUint32(b, messages)
	})
}

// AppendTagOk appends basic.consume-ok or basic.cancel-ok.
func AppendTagOk(b []byte, channel, method uint16, tag string) []byte {
	return appendMethod(b, channel, ClassBasic, method, func(b []byte) []byte { return appendShort(b, tag) })
}

// AppendCancel appends a basic.cancel that asks for no answer.
func AppendCancel(b []byte, channel uint16, tag string) []byte {
	return appendMethod(b, channel, ClassBasic, 30, func(b []byte) []byte {
		return append(appendShort(b, tag), 1)
	})
}

func AppendReturn(b []byte, channel, code uint16, text, exchange, key string) []byte {
	return appendMethod(b, channel, ClassBasic, 50, func(b []byte) []byte {
		b = binary.BigEndian.AppendUint16(b, code)
		b = appendShort(b, text)
		b = appendShort(b, exchange)
		return appendShort(b, key)
	})
}

func AppendDeliver(b []byte, channel uint16, tag string, delivery uint64, redelivered bool, exchange, key string) []byte {
	return appendMethod(b, channel, ClassBasic, 60, func(b []byte) []byte {
		b = appendShort(b, tag)
		b = binary.BigEndian.AppendUint64(b, delivery)
		b = appendBit(b, redelivered)
		b = appendShort(b, exchange)
		return appendShort(b, key)
	})
}

func AppendGetOk(b []byte, channel uint16, delivery uint64, redelivered bool, exchange, key string, left uint32) []byte {
	return appendMethod(b, channel, ClassBasic, 71, func(b []byte) []byte {
		b = binary.BigEndian.AppendUint64(b, delivery)
		b = appendBit(b, redelivered)
		b = appendShort(b, exchange)
		b = appendShort(b, key)
		return binary.BigEndian.AppendUint32(b, left)
	})
}

func AppendGetEmpty(b []byte, channel uint16) []byte {
	return appendMethod(b, channel, ClassBasic, 72, func(b []byte) []byte { return append(b, 0) })
}

// AppendConfirm appends basic.ack or basic.nack.
func AppendConfirm(b []byte, channel uint16, seq uint64, multiple, ack bool) []byte {
	method := uint16(80)
	if !ack {
		method = 120
	}
	return appendMethod(b, channel, ClassBasic, method, func(b []byte) []byte {
		return appendBit(binary.BigEndian.AppendUint64(b, seq), multiple)
	})
}

func appendBit(b []byte, bit bool) []byte {
	if bit {
		return append(b, 1)
	}
	return append(b, 0)
}
