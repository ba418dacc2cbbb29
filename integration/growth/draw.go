package main

import (
	"errors"
	"image/color"
	"os"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

var colours = []color.RGBA{{0x05, 0x96, 0x69, 0xff}, {0xd9, 0x77, 0x06, 0xff}}

// draw writes a plot as an SVG.
func (e experiment) draw(p plotted, rows []row, path string) (err error) {
	chart := plot.New()
	chart.BackgroundColor = color.White
	chart.Title.Text, chart.X.Label.Text, chart.Y.Label.Text = p.title, e.x, p.y
	chart.Title.Padding, chart.Legend.Top, chart.Legend.Left = vg.Points(8), true, true
	if p.logX {
		var ticks plot.ConstantTicks
		for _, r := range rows {
			ticks = append(ticks, plot.Tick{Value: float64(r.x), Label: strconv.Itoa(r.x)})
		}
		chart.X.Scale, chart.X.Tick.Marker = plot.LogScale{}, ticks
	} else {
		chart.X.Min = 0
	}
	if p.logY {
		chart.Y.Scale, chart.Y.Tick.Marker, chart.Legend.Left = plot.LogScale{}, plot.LogTicks{Prec: -1}, false
	}
	chart.Add(plotter.NewGrid())
	for i, column := range p.columns {
		var points plotter.XYs
		for _, r := range rows {
			points = append(points, plotter.XY{X: float64(r.x), Y: r.figures[column]})
		}
		line, dots, err := plotter.NewLinePoints(points)
		if err != nil {
			return err
		}
		line.Color, line.Width, dots.Color = colours[i], vg.Points(2), colours[i]
		chart.Add(line, dots)
		name, _, _ := strings.Cut(e.columns[column], ",")
		chart.Legend.Add(name, line, dots)
	}
	if !p.logY { // room for the legend
		chart.Y.Min, chart.Y.Max = 0, chart.Y.Max*1.3
	}
	canvas := vgsvg.New(16*vg.Centimeter, 9*vg.Centimeter)
	// A browser's font may be wider than the one that the labels were measured with.
	chart.Draw(draw.Crop(draw.New(canvas), vg.Points(8), -vg.Points(30), vg.Points(6), -vg.Points(6)))
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = canvas.WriteTo(file)
	return errors.Join(err, file.Close())
}
