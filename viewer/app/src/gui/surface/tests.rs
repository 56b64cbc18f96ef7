//! Tests of the rasteriser's pixels and of the SVG's elements, on shapes and meshes made by hand.

use std::sync::Arc;

use eframe::egui::epaint::textures::{TextureOptions, TexturesDelta};
use eframe::egui::epaint::{ClippedPrimitive, ClippedShape, ImageDelta, Primitive, Vertex, WHITE_UV};
use eframe::egui::{
    Align2, Color32, ColorImage, FontId, Mesh, Pos2, Rect, Shape, Stroke, TextureId, Theme, pos2, vec2,
};

use super::texture::Textures;
use super::{Paper, Surface, raster, svg};

const PLAIN: TextureId = TextureId::Managed(0);
const PICTURE: TextureId = TextureId::Managed(7);
const RED: Color32 = Color32::from_rgb(200, 0, 0);

/// A white texture, and one of three by two pixels.
fn textures(options: TextureOptions) -> Textures {
    let mut news = TexturesDelta::default();
    news.push(PLAIN, ImageDelta::full(ColorImage::filled([1, 1], Color32::WHITE), TextureOptions::LINEAR));
    let picture = ColorImage::from_gray([3, 2], &[10, 20, 30, 40, 50, 60]);
    news.push(PICTURE, ImageDelta::full(picture, options));
    let mut textures = Textures::default();
    textures.apply(news);
    textures
}

fn triangle(corners: [[f32; 2]; 3], colours: [Color32; 3]) -> Mesh {
    let vertices = corners.into_iter().zip(colours);
    let vertices = vertices.map(|([x, y], color)| Vertex { pos: pos2(x, y), uv: WHITE_UV, color });
    Mesh { indices: vec![0, 1, 2], vertices: vertices.collect(), texture_id: PLAIN }
}

/// `meshes` on a white canvas of `size` pixels, clipped at `clip`.
fn painted_in(size: [usize; 2], meshes: Vec<Mesh>, clip: Rect, scale: f32) -> ColorImage {
    let mut canvas = ColorImage::filled(size, Color32::WHITE);
    let primitives: Vec<ClippedPrimitive> =
        meshes.into_iter().map(|mesh| ClippedPrimitive { clip_rect: clip, primitive: Primitive::Mesh(mesh) }).collect();
    raster::paint(&mut canvas, &primitives, &textures(TextureOptions::NEAREST), scale);
    canvas
}

fn painted(size: [usize; 2], meshes: Vec<Mesh>) -> ColorImage {
    painted_in(size, meshes, Rect::EVERYTHING, 1.0)
}

/// The canvas with `#` for what is painted at all.
fn shown(canvas: &ColorImage) -> Vec<String> {
    let rows = canvas.pixels.chunks(canvas.size[0]);
    let letter = |pixel: &Color32| if *pixel == Color32::WHITE { '.' } else { '#' };
    rows.map(|row| row.iter().map(letter).collect()).collect()
}

#[test]
fn a_pixel_is_painted_where_its_middle_is_inside() {
    let mesh = triangle([[0.0, 0.0], [4.0, 0.0], [0.0, 4.0]], [RED; 3]);
    // The middles on the slope lie on a right edge: they are the neighbour's.
    assert_eq!(shown(&painted([5, 5], vec![mesh])), ["###..", "##...", "#....", ".....", "....."]);
    let other = triangle([[4.0, 0.0], [4.0, 4.0], [0.0, 4.0]], [RED; 3]);
    assert_eq!(shown(&painted([5, 5], vec![other])), ["...#.", "..##.", ".###.", "####.", "....."]);
    let mut rect = Mesh::default();
    rect.add_colored_rect(Rect::from_min_max(pos2(0.5, 1.49), pos2(3.5, 2.51)), RED);
    assert_eq!(shown(&painted([5, 4], vec![rect])), [".....", "###..", "###..", "....."]);
}

#[test]
fn triangles_that_share_edges_paint_every_pixel_once() {
    // A fan round a crooked middle, in two pieces turned the one and the other way; half transparent, so that a pixel
    // painted twice, or left out, has another colour.
    let veil = Color32::from_rgba_premultiplied(0, 0, 0, 100);
    let rim: Vec<Pos2> = [[-3.0, -2.0], [41.3, -7.0], [77.7, 1.0], [90.0, 66.6], [31.0, 99.9], [-20.0, 71.2]]
        .map(|[x, y]| pos2(x, y))
        .to_vec();
    let mut mesh = Mesh::default();
    mesh.colored_vertex(pos2(37.77, 31.13), veil);
    rim.iter().for_each(|corner| mesh.colored_vertex(*corner, veil));
    for index in 0..6_u32 {
        let (one, other) = (1 + index, 1 + (index + 1) % 6);
        let (one, other) = if index % 2 == 0 { (one, other) } else { (other, one) };
        mesh.add_triangle(0, one, other);
    }
    let canvas = painted([70, 65], vec![mesh]);
    let once = Color32::from_gray(155);
    assert!(canvas.pixels.iter().all(|pixel| *pixel == once), "{:?}", shown(&canvas));
}

#[test]
fn colours_blend_as_they_are_stored() {
    let over = |colour: Color32| painted([1, 1], vec![triangle([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0]], [colour; 3])]);
    assert_eq!(over(RED).pixels, [RED]);
    assert_eq!(over(Color32::from_rgba_premultiplied(100, 0, 0, 128)).pixels, [Color32::from_rgb(227, 127, 127)]);
    assert_eq!(over(Color32::TRANSPARENT).pixels, [Color32::WHITE]);
    let mut canvas = ColorImage::filled([1, 1], Color32::from_rgb(100, 100, 250));
    let glow = triangle([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0]], [Color32::from_rgb_additive(10, 0, 10); 3]);
    let primitive = ClippedPrimitive { clip_rect: Rect::EVERYTHING, primitive: Primitive::Mesh(glow) };
    raster::paint(&mut canvas, &[primitive], &textures(TextureOptions::LINEAR), 1.0);
    assert_eq!(canvas.pixels, [Color32::from_rgb(110, 100, 255)]);
}

#[test]
fn colours_fade_evenly_between_corners() {
    let mut mesh = Mesh::default();
    for (x, colour) in [(0.0, Color32::BLACK), (10.0, Color32::from_gray(200))] {
        mesh.colored_vertex(pos2(x, 0.0), colour);
        mesh.colored_vertex(pos2(x, 3.0), colour);
    }
    mesh.add_triangle(0, 1, 2);
    mesh.add_triangle(1, 2, 3);
    let canvas = painted([10, 3], vec![mesh]);
    let greys: Vec<u8> = canvas.pixels[10..20].iter().map(|pixel| pixel.r()).collect();
    assert_eq!(greys, [10, 30, 50, 70, 90, 110, 130, 150, 170, 190]);
    assert_eq!(canvas.pixels[..10], canvas.pixels[20..]);
}

#[test]
fn nothing_is_painted_outside_of_the_clip_however_large_it_is() {
    let clip = Rect::from_min_max(pos2(1.4, 0.6), pos2(3.4, 2.4));
    let huge = triangle([[-1e9, -1e9], [1e9, -1e9], [0.0, 2e9]], [RED; 3]);
    let expected = [".....", ".##..", ".....", "....."];
    assert_eq!(shown(&painted_in([5, 4], vec![huge.clone()], clip, 1.0)), expected);
    assert_eq!(
        shown(&painted_in([5, 4], vec![huge], Rect::from_min_max(pos2(9.0, 9.0), pos2(12.0, 12.0)), 1.0)),
        ["....."; 4]
    );
    let nowhere = triangle([[f32::NAN, 0.0], [9.0, 0.0], [0.0, 9.0]], [RED; 3]);
    let endless = triangle([[f32::INFINITY, 0.0], [9.0, 0.0], [0.0, 9.0]], [RED; 3]);
    let mut broken = triangle([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0]], [RED; 3]);
    broken.indices = vec![0, 1, 17];
    assert_eq!(shown(&painted([5, 4], vec![nowhere, endless, broken])), ["....."; 4]);
}

#[test]
fn what_is_far_away_is_cut_where_it_belongs() {
    // Below the line y = x, whose own pixels are on a right edge, with corners far outside.
    let far = 4e6;
    let mesh = triangle([[-far, -far], [far, far], [-far, far]], [RED; 3]);
    assert_eq!(shown(&painted([4, 4], vec![mesh])), ["....", "#...", "##..", "###."]);
}

#[test]
fn pictures_are_drawn_texel_by_texel_and_stretched() {
    let picture = |rect: Rect, tint: Color32| {
        let mut mesh = Mesh::with_texture(PICTURE);
        mesh.add_rect_with_uv(rect, Rect::from_min_max(Pos2::ZERO, pos2(1.0, 1.0)), tint);
        mesh
    };
    let greys = |canvas: &ColorImage| canvas.pixels.iter().map(|pixel| pixel.r()).collect::<Vec<u8>>();
    let same = Rect::from_min_size(pos2(0.0, 0.0), vec2(3.0, 2.0));
    assert_eq!(greys(&painted([3, 2], vec![picture(same, Color32::WHITE)])), [10, 20, 30, 40, 50, 60]);
    assert_eq!(greys(&painted([3, 2], vec![picture(same, Color32::from_gray(51))])), [2, 4, 6, 8, 10, 12]);
    let twice = painted_in([6, 4], vec![picture(same, Color32::WHITE)], Rect::EVERYTHING, 2.0);
    assert_eq!(greys(&twice)[..12], [10, 10, 20, 20, 30, 30, 10, 10, 20, 20, 30, 30]);
    let mut canvas = ColorImage::filled([6, 2], Color32::WHITE);
    let wide = picture(Rect::from_min_size(pos2(0.0, 0.0), vec2(6.0, 2.0)), Color32::WHITE);
    let primitive = ClippedPrimitive { clip_rect: Rect::EVERYTHING, primitive: Primitive::Mesh(wide) };
    raster::paint(&mut canvas, &[primitive], &textures(TextureOptions::LINEAR), 1.0);
    assert_eq!(greys(&canvas)[..6], [10, 13, 18, 23, 28, 30], "between texels lies their mean");
}

#[test]
fn every_strip_of_a_tall_picture_is_painted_the_same() {
    let mut mesh = Mesh::default();
    mesh.add_colored_rect(Rect::from_min_max(pos2(0.0, 10.0), pos2(2.0, 90.0)), RED);
    let canvas = painted([2, 100], vec![mesh]);
    let is_red: Vec<bool> = canvas.pixels.chunks(2).map(|row| row == [RED, RED]).collect();
    assert!((0..100).all(|y| is_red[y] == (10..90).contains(&y)));
}

/// The SVG of `shapes` on the smallest paper.
fn document(shapes: Vec<Shape>, clip: Rect) -> String {
    let paper = Paper::new([640, 400], 1.0, Theme::Light).unwrap();
    let clipped: Vec<ClippedShape> = shapes
        .into_iter()
        .map(|shape| ClippedShape { clip_rect: clip, shape, transform_after_tessellation: Default::default() })
        .collect();
    svg::document(&clipped, &textures(TextureOptions::NEAREST), &paper, Color32::WHITE, "a & b")
}

#[test]
fn shapes_become_elements_of_their_kind() {
    let line = Shape::line(vec![pos2(1.0, 2.0), pos2(3.0, 4.0), pos2(5.0, 2.0)], Stroke::new(1.5, RED));
    let shapes = vec![
        Shape::rect_filled(Rect::from_min_max(pos2(10.0, 20.0), pos2(40.0, 60.0)), 0.0, RED),
        Shape::rect_filled(Rect::from_min_max(pos2(10.0, 20.0), pos2(40.0, 60.0)), 3.0, Color32::from_black_alpha(51)),
        Shape::circle_filled(pos2(50.0, 50.0), 4.5, RED),
        Shape::line_segment([pos2(0.0, 8.0), pos2(9.0, 8.0)], Stroke::new(1.0, RED)),
        line,
        Shape::circle_filled(pos2(5000.0, 50.0), 4.5, RED),
        Shape::Noop,
    ];
    let text = document(shapes, Rect::EVERYTHING);
    for expected in [
        "<title>a &amp; b</title>",
        "<rect x=\"10\" y=\"20\" width=\"30\" height=\"40\" fill=\"#c80000\" shape-rendering=\"crispEdges\"/>",
        "rx=\"3\" fill=\"#000000\" fill-opacity=\"0.200\"",
        "<circle cx=\"50\" cy=\"50\" r=\"4.5\" fill=\"#c80000\"/>",
        "y1=\"8.5\"",
        "<path d=\"M1,2L3,4L5,2\" fill=\"none\" stroke=\"#c80000\" stroke-width=\"1.5\"",
    ] {
        assert!(text.contains(expected), "{expected} is not in {text}");
    }
    assert_eq!(text.matches("<circle").count(), 1, "what lies outside of the picture is left out");
    let clipped = document(
        vec![Shape::circle_filled(pos2(50.0, 50.0), 9.0, RED); 2],
        Rect::from_min_max(pos2(45.0, 45.0), pos2(52.0, 52.0)),
    );
    assert_eq!((clipped.matches("<clipPath").count(), clipped.matches("url(#c0)").count()), (1, 1));
}

#[test]
fn rectangles_of_triangles_become_rectangles_and_images() {
    let mut plain = Mesh::default();
    plain.add_colored_rect(Rect::from_min_max(pos2(1.0, 2.0), pos2(4.0, 6.0)), RED);
    plain.add_colored_rect(Rect::from_min_max(pos2(4.0, 2.0), pos2(9.0, 6.0)), Color32::BLUE);
    let mut picture = Mesh::with_texture(PICTURE);
    let left = Rect::from_min_max(Pos2::ZERO, pos2(0.5, 1.0));
    picture.add_rect_with_uv(Rect::from_min_max(pos2(10.0, 20.0), pos2(25.0, 40.0)), left, Color32::WHITE);
    let slanted = triangle([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0]], [RED; 3]);
    let text = document([plain, picture, slanted].map(|mesh| Shape::Mesh(Arc::new(mesh))).to_vec(), Rect::EVERYTHING);
    assert_eq!(text.matches("<rect x=").count() - text.matches("<clipPath").count(), 2);
    assert!(text.contains("<rect x=\"4\" y=\"2\" width=\"5\" height=\"4\" fill=\"#0000ff\""), "{text}");
    assert_eq!(text.matches("<polygon points=\"0,0 9,0 0,9\" fill=\"#c80000\"").count(), 1);
    // Half of three columns: two whole texels, of which the second sticks out and is cut off.
    assert!(text.contains("<rect x=\"10\" y=\"20\" width=\"15\" height=\"20\"/></clipPath>"), "{text}");
    assert!(text.contains("<image x=\"10\" y=\"20\" width=\"20\" height=\"20\""), "{text}");
}

#[test]
fn text_keeps_its_letters_places_fonts_and_colours() {
    let paper = Paper::new([640, 400], 1.0, Theme::Dark).unwrap();
    let mut surface = Surface::new(paper);
    let is_complete = surface.draw(|ui| {
        let painter = ui.painter();
        painter.text(pos2(300.0, 100.0), Align2::RIGHT_TOP, "5 < 6 &\nnext  row", FontId::proportional(14.0), RED);
        painter.text(pos2(20.0, 200.0), Align2::LEFT_TOP, "mono", FontId::monospace(11.0), Color32::BLUE);
        true
    });
    assert!(is_complete);
    let text = surface.svg("text");
    let element = |content: &str| {
        let found = text.lines().find(|line| line.contains(content));
        found.unwrap_or_else(|| panic!("{content} is not in {text}")).to_owned()
    };
    let first = element(">5 &lt; 6 &amp;</text>");
    assert!(first.contains("font-size=\"14\"") && first.contains("fill=\"#c80000\"") && first.contains("textLength"));
    let widest = element(">next  row</text>");
    assert!(widest.contains("xml:space=\"preserve\""));
    let mono = element(">mono</text>");
    assert!(mono.contains("x=\"20\"") && mono.contains("monospace") && mono.contains("fill=\"#0000ff\""), "{mono}");
    let number = |element: &str, name: &str| -> f32 {
        let (_, rest) = element.split_once(&format!(" {name}=\"")).unwrap();
        rest.split('"').next().unwrap().parse().unwrap()
    };
    let end = number(&widest, "x") + number(&widest, "textLength");
    assert!((end - 300.0).abs() < 1.5, "it ends at {end}");
}

#[test]
fn a_drawing_that_never_settles_is_taken_as_it_is_once_it_says_that_it_is_complete() {
    let paper = Paper::new([640, 400], 1.0, Theme::Dark).unwrap();
    let mut surface = Surface::new(paper);
    let mut frames = 0;
    let is_complete = surface.draw(|ui| {
        frames += 1;
        ui.label(frames.to_string());
        frames > 3
    });
    assert!(is_complete && (4..=20).contains(&frames), "{frames}");
    let image = surface.image();
    assert_eq!(image.size, [640, 400]);
    assert!(image.pixels.iter().all(|pixel| pixel.is_opaque()));
    assert!(image.pixels.iter().any(|pixel| *pixel != image.pixels[0]), "the number can be seen");
}
